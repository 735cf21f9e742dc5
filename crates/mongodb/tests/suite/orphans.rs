//! What a process leaves behind that dies in the middle of a transaction.

use std::time::{Duration, Instant};

use oncebox_core::store::Store;
use oncebox_mongodb::MongoStore;

use super::support::{Verdict, claim, database, receipts};

/// Its connections are closed, and nobody aborts its transaction.
fn die_with_a_receipt(url: String) {
    let dying = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let store = MongoStore::connect(&url).await.unwrap();
            let claimed = claim(&store, "a").await.unwrap();
            assert_eq!(claimed.fresh, [true]);
            // Dropped, it would be aborted.
            Box::leak(Box::new(claimed));
        });
        runtime.shutdown_timeout(Duration::from_secs(5));
    });
    dying.join().unwrap();
}

/// The server itself would end it after a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_transaction_of_a_dead_process_does_not_hold_its_receipts() -> Verdict {
    let temporary = database().await;
    let url = temporary.url().to_owned();
    tokio::task::spawn_blocking(move || die_with_a_receipt(url)).await?;
    let store = temporary.store();
    // Its claim would give up after ten seconds.
    let claimed = claim(&store, "a").await?;
    assert_eq!(claimed.fresh, [true]);
    store.commit(claimed.txn, None).await?;
    assert_eq!(receipts(&temporary).await?, ["a"]);
    Ok(())
}

/// One that lives is waited for, however long it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_transaction_of_a_process_that_lives_is_left_alone() -> Verdict {
    let temporary = database().await;
    let other = MongoStore::connect(temporary.url()).await?;
    let held = claim(&other, "a").await?;
    let impatient = MongoStore::builder(temporary.url()).lock_timeout(Duration::from_secs(1));
    let impatient = impatient.connect().await?;
    let began = Instant::now();
    let error = claim(&impatient, "a").await.unwrap_err();
    assert!(began.elapsed() >= Duration::from_secs(1), "{error}");
    other.commit(held.txn, None).await?;
    assert_eq!(claim(&impatient, "a").await?.fresh, [false]);
    Ok(())
}
