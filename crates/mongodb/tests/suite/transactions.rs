//! What handlers can do with their transaction, and what they cannot.

use mongodb::bson::{Document, doc};
use oncebox_core::error::BoxError;
use oncebox_core::store::{ErrorClass, Store};
use oncebox_mongodb::{MongoTx, TemporaryMongo};

use super::support::{Verdict, claim, claims, database, receipts, stock};

async fn ledger(temporary: &TemporaryMongo) -> Result<Vec<i32>, BoxError> {
    use futures_util::TryStreamExt;
    let ledger = temporary.database().await.collection::<Document>("ledger");
    let found: Vec<Document> = ledger.find(doc! {}).sort(doc! { "_id": 1 }).await?.try_collect().await?;
    Ok(found.iter().filter_map(|entry| entry.get_i32("n").ok()).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_natural_code_is_in_the_transaction() -> Verdict {
    async fn handler(tx: &mut MongoTx) -> mongodb::error::Result<()> {
        tx.collection("ledger").insert_one(doc! { "_id": 1, "n": 1 }).await?;
        tx.collection::<Document>("ledger")
            .update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } })
            .await?;
        let upsert = doc! { "$set": { "n": 7 } };
        tx.collection::<Document>("ledger")
            .update_one(doc! { "_id": 2 }, upsert)
            .with(|u| u.upsert(true))
            .await?;
        assert_eq!(tx.collection::<Document>("ledger").count_documents(doc! {}).await?, 2);
        let found =
            tx.collection::<Document>("ledger").find(doc! {}).with(|f| f.sort(doc! { "_id": -1 })).await?;
        assert_eq!(found.len(), 2);
        let one = tx.collection::<Document>("ledger").find_one(doc! { "_id": 1 }).await?.unwrap();
        assert_eq!(one.get_i32("n").unwrap(), 2);
        Ok(())
    }
    let temporary = database().await;
    let store = temporary.store();
    let mut claimed = claim(&store, "a").await?;
    handler(&mut claimed.txn).await?;
    store.rollback(claimed.txn).await;
    assert!(ledger(&temporary).await?.is_empty());
    let mut claimed = claim(&store, "a").await?;
    handler(&mut claimed.txn).await?;
    store.commit(claimed.txn, None).await?;
    assert_eq!(ledger(&temporary).await?, [2, 7]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_writes_keep_their_order_and_are_seen() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let mut claimed = claim(&store, "a").await?;
    let tx: &mut MongoTx = &mut claimed.txn;
    for n in 0..100 {
        tx.collection("ledger").insert_later(doc! { "_id": n, "n": 0 })?;
        tx.collection::<Document>("totals")
            .upsert_one_later(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } })?;
    }
    tx.collection::<Document>("ledger").update_one_later(doc! { "_id": 5 }, doc! { "$set": { "n": 5 } })?;
    tx.collection::<Document>("ledger").delete_one_later(doc! { "_id": 5 })?;
    tx.collection("ledger").insert_later(doc! { "_id": 5, "n": 55 })?;
    assert_eq!(tx.collection::<Document>("ledger").count_documents(doc! {}).await?, 100);
    let total = tx.collection::<Document>("totals").find_one(doc! { "_id": 1 }).await?.unwrap();
    assert_eq!(total.get_i32("n")?, 100);
    tx.collection("ledger").insert_later(doc! { "_id": 100, "n": 100 })?;
    store.commit(claimed.txn, None).await?;
    let ledger = ledger(&temporary).await?;
    assert_eq!((ledger.len(), ledger[5], ledger[100]), (101, 55, 100));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_write_that_is_refused_fails_the_batch() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let mut claimed = claim(&store, "a").await?;
    claimed.txn.collection("ledger").insert_later(doc! { "_id": 1, "n": 1 })?;
    claimed.txn.collection("ledger").insert_later(doc! { "_id": 1, "n": 2 })?;
    let error = store.commit(claimed.txn, None).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Failed, "{error}");
    assert!(error.to_string().contains("11000"), "{error}");
    assert!(receipts(&temporary).await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_swallows_an_error_is_told() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let mut claimed = claim(&store, "a").await?;
    let tx: &mut MongoTx = &mut claimed.txn;
    tx.collection("ledger").insert_one(doc! { "_id": 1, "n": 1 }).await?;
    assert!(tx.collection("ledger").insert_one(doc! { "_id": 1, "n": 2 }).await.is_err());
    let error = store.commit(claimed.txn, None).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Failed, "the class of what was swallowed: {error}");
    assert!(error.to_string().contains("must not go on after it"), "{error}");
    assert_eq!((ledger(&temporary).await?.len(), receipts(&temporary).await?.len()), (0, 0));
    Ok(())
}

/// The server has done what it was asked for, or was not asked: the transaction is as good as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_cannot_be_read_or_written_does_not_end_the_transaction() -> Verdict {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Entry {
        n: std::collections::BTreeMap<u64, u64>,
    }
    let temporary = database().await;
    let store = temporary.store();
    let mut claimed = claim(&store, "a").await?;
    let tx: &mut MongoTx = &mut claimed.txn;
    tx.collection("ledger").insert_one(doc! { "_id": 1, "n": 1 }).await?;
    assert!(tx.collection::<Entry>("ledger").find_one(doc! {}).await.is_err(), "a number is no map");
    assert!(tx.collection::<Entry>("ledger").find(doc! {}).await.is_err());
    let large = Entry { n: [(0, u64::MAX)].into() };
    assert!(
        tx.collection::<Entry>("ledger").insert_one(&large).await.is_err(),
        "it is too large for a number of BSON"
    );
    assert!(tx.collection::<Document>("ledger").update_one(doc! {}, doc! {}).await.is_err());
    tx.collection("ledger").insert_one(doc! { "_id": 2, "n": 2 }).await?;
    store.commit(claimed.txn, None).await?;
    assert_eq!((ledger(&temporary).await?, receipts(&temporary).await?.len()), (vec![1, 2], 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_ends_the_transaction_is_told() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let mut claimed = claim(&store, "a").await?;
    claimed.txn.parts().1.abort_transaction().await?;
    let error = store.commit(claimed.txn, None).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Failed, "{error}");
    assert!(error.to_string().contains("leave commit and abort to oncebox"), "{error}");
    assert!(receipts(&temporary).await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_commits_by_itself_is_found_out_however_the_transaction_ends() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    for (id, commits, begins_another) in [("a", true, false), ("b", false, false), ("c", false, true)] {
        let mut claimed = claim(&store, id).await?;
        let (_, session) = claimed.txn.parts();
        session.commit_transaction().await?;
        if begins_another {
            session.start_transaction().await?;
        }
        let ended =
            if commits { store.commit(claimed.txn, None).await } else { store.undo(claimed.txn).await };
        let error = ended.unwrap_err();
        assert_eq!(error.class, ErrorClass::Torn, "{id}: {error}");
    }
    let mut claimed = claim(&store, "d").await?;
    claimed.txn.parts().1.abort_transaction().await?;
    store.undo(claimed.txn).await?;
    assert_eq!(receipts(&temporary).await?.len(), 3);
    Ok(())
}

/// The driver's own session, for what is not offered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_driver_is_reachable() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let mut claimed = claim(&store, "a").await?;
    let (database, session) = claimed.txn.parts();
    let ledger_of_driver = database.collection::<Document>("ledger");
    ledger_of_driver.insert_one(doc! { "_id": 1, "n": 1 }).session(session).await?;
    assert!(ledger(&temporary).await?.is_empty());
    store.commit(claimed.txn, None).await?;
    assert_eq!(ledger(&temporary).await?, [1]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_was_dropped_half_way_fails_the_batch() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let mut claimed = claim(&store, "a").await?;
    {
        let mut ledger = claimed.txn.collection("ledger");
        let insert = ledger.insert_one(doc! { "_id": 1, "n": 1 }).into_future();
        // Polled once: it is on its way.
        let first = futures_util::future::select(insert, std::future::ready(())).await;
        assert!(matches!(first, futures_util::future::Either::Right(_)), "it was answered at once");
    }
    let error = store.commit(claimed.txn, None).await.unwrap_err();
    assert!(error.to_string().contains("Let operations end"), "{error}");
    assert_eq!((ledger(&temporary).await?.len(), receipts(&temporary).await?.len()), (0, 0));
    Ok(())
}

/// Whatever succeeds after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_operation_is_not_forgotten() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let mut claimed = claim(&store, "a").await?;
    let tx: &mut MongoTx = &mut claimed.txn;
    tx.collection("ledger").insert_later(doc! { "_id": 1, "n": 1 })?;
    {
        let mut ledger = tx.collection::<Document>("ledger");
        let find = ledger.find_one(doc! {}).into_future();
        let first = futures_util::future::select(find, std::future::ready(())).await;
        assert!(matches!(first, futures_util::future::Either::Right(_)), "it was answered at once");
    }
    tx.collection("other").insert_one(doc! { "_id": 1 }).await?;
    let error = store.commit(claimed.txn, None).await.unwrap_err();
    assert!(error.to_string().contains("Let operations end"), "{error}");
    assert_eq!((ledger(&temporary).await?.len(), receipts(&temporary).await?.len()), (0, 0));
    Ok(())
}

/// The driver refuses to begin a transaction there, as it does where one is open. Receipts would be written at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_cannot_have_a_transaction_claims_nothing() -> Verdict {
    let temporary = database().await;
    let database = temporary.database().await;
    let mut session = database.client().start_session().snapshot(true).await?;
    session.start_transaction().await.unwrap_err();
    let mut tx = MongoTx::new(session, database.clone());
    let error = temporary.store().claim_within(&mut tx, &stock(), &claims(&["a"])).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Failed, "{error}");
    assert!(error.to_string().contains("none can begin"), "{error}");
    assert!(receipts(&temporary).await?.is_empty());

    let mut tx = MongoTx::new(database.client().start_session().await?, database.clone());
    let error = temporary.store().claim_within(&mut tx, &stock(), &claims(&["a"])).await.unwrap_err();
    assert!(error.to_string().contains("call `start_transaction` on it first"), "{error}");
    assert!(receipts(&temporary).await?.is_empty());

    let mut session = database.client().start_session().await?;
    session.start_transaction().await?;
    let mut tx = MongoTx::new(session, database);
    assert_eq!(temporary.store().claim_within(&mut tx, &stock(), &claims(&["a"])).await?, [true]);
    assert!(receipts(&temporary).await?.is_empty(), "it is not committed yet");
    tx.into_session().commit_transaction().await?;
    assert_eq!(receipts(&temporary).await?, ["a"]);
    Ok(())
}
