//! Retention, beyond what every store must do.

use std::time::{Duration, SystemTime};

use oncebox_core::store::{PassEnd, Purge, PurgePass, Purged, Retention, Store};
use oncebox_mysql::MysqlStore;
use tokio_util::sync::CancellationToken;

use super::support::{apply, claims, consumer, execute, number, with_store};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const AGE: &str = "UPDATE oncebox_inbox SET processed_at = processed_at - INTERVAL 2 DAY";

async fn purge(store: &MysqlStore) -> Purged {
    let retention = [Retention { consumer: consumer(), keep: DAY }];
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let stop = CancellationToken::new();
    let now_ms = i64::try_from(now.as_millis()).unwrap();
    let pass = PurgePass { retention: &retention, now_ms, dry_run: false, stop: &stop, progress: &|_| {} };
    store.purge(pass).await.unwrap()
}

#[tokio::test]
async fn a_batch_that_is_under_way_is_not_waited_for() {
    with_store(|store, url| async move {
        apply(&store, &["a", "b", "c"]).await;
        execute(&url, AGE).await;
        // Receipts between the old ones, in a transaction that ends after the purge only.
        let open = store.claim(&consumer(), &claims(&["d", "e", "f", "g", "h", "i"])).await.unwrap();
        let purged =
            tokio::time::timeout(Duration::from_secs(5), purge(&store)).await.expect("waits for the batch");
        assert_eq!((purged.receipts, purged.end), (3, PassEnd::Finished));
        store.commit(open.txn, None).await.unwrap();
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_inbox").await, 6);
    })
    .await;
}

#[tokio::test]
async fn whoever_sees_a_receipt_missing_sees_the_horizon() {
    with_store(|store, url| async move {
        apply(&store, &["a"]).await;
        execute(&url, AGE).await;
        let mut open = store.claim(&consumer(), &claims(&["other"])).await.unwrap();
        assert_eq!(store.purged_before(&mut open.txn, &consumer()).await.unwrap(), None);
        purge(&store).await;
        let before = store.purged_before(&mut open.txn, &consumer()).await.unwrap();
        assert!(before.is_some(), "the receipt is gone, and nothing says so");
        store.rollback(open.txn).await;
    })
    .await;
}

#[tokio::test]
async fn a_receipt_that_a_copy_holds_goes_afterwards() {
    with_store(|store, url| async move {
        apply(&store, &["a"]).await;
        execute(&url, AGE).await;
        let copy = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        assert_eq!(copy.fresh, [false]);
        let purging = tokio::spawn({
            let store = store.clone();
            async move { purge(&store).await }
        });
        // Until it waits for the copy. The server looks anew only when it was not asked for a tenth of a second.
        let waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx AS t \
             JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id AND p.db = DATABASE() \
             WHERE t.trx_state = 'LOCK WAIT' AND t.trx_query LIKE 'DELETE FROM oncebox_inbox%'";
        while number(&url, waiting).await == 0 {
            assert!(!purging.is_finished(), "the purge did not wait for the copy");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        store.commit(copy.txn, None).await.unwrap();
        assert_eq!(purging.await.unwrap().receipts, 1);
        assert_eq!(apply(&store, &["a"]).await, [true]);
    })
    .await;
}
