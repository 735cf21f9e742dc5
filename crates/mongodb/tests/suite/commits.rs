//! Commits whose answer never comes.

use std::time::Duration;

use oncebox_core::store::{ErrorClass, Positions, Store};
use oncebox_mongodb::MongoStore;

use super::proxy::{Loses, Proxy};
use super::support::{Verdict, claim, database, orders, receipts, server, to};

pub(crate) async fn through(proxy: &Proxy, url: &str) -> Result<MongoStore, oncebox_core::error::BoxError> {
    let name = url.rsplit('/').next().and_then(|rest| rest.split('?').next()).unwrap_or_default();
    let builder = MongoStore::builder(&proxy.url(name)).commit_timeout(Duration::from_secs(5));
    Ok(builder.connect().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_got_lost_is_asked_for_again() -> Verdict {
    for loses in [Loses::Answers, Loses::Requests] {
        let temporary = database().await;
        let proxy = Proxy::start(&server(), loses).await;
        let store = through(&proxy, temporary.url()).await?;
        let owner = store.acquire(&orders()).await?;
        let claimed = claim(&store, "a").await?;
        proxy.lose(4);
        store.commit(claimed.txn, to(&owner, 1)).await?;
        assert_eq!(proxy.left(), 0, "{loses:?}: some were not lost");
        assert_eq!(receipts(&temporary).await?, ["a"]);
        assert_eq!(claim(&store, "a").await?.fresh, [false]);
        assert_eq!(store.acquire(&orders()).await?.commits, 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receipt_knows_when_nobody_else_does() -> Verdict {
    for (loses, fresh) in [(Loses::Answers, false), (Loses::Requests, true)] {
        let temporary = database().await;
        let proxy = Proxy::start(&server(), loses).await;
        let store = through(&proxy, temporary.url()).await?;
        let owner = store.acquire(&orders()).await?;
        let claimed = claim(&store, "a").await?;
        proxy.lose(1_000_000);
        let error = store.commit(claimed.txn, to(&owner, 1)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Away, "{error}");
        assert!(error.to_string().contains("nobody knows"), "{error}");
        proxy.lose(0);
        // The batch runs again, and is fresh or a duplicate: never both, and never neither.
        let again = claim(&store, "a").await?;
        assert_eq!(again.fresh, [fresh], "{loses:?}");
        store.commit(again.txn, to(&owner, 1)).await?;
        assert_eq!(receipts(&temporary).await?, ["a"]);
    }
    Ok(())
}
