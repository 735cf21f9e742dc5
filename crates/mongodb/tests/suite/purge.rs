//! Retention beside replays and other purgers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use oncebox_core::clock::Clock;
use oncebox_core::error::{BoxError, describe};
use oncebox_core::store::{
    DeadLetters, PassEnd, Positions, Progress, Purge, PurgePass, PurgeProgress, Purged, Retention, Status,
    Store,
};
use oncebox_mongodb::{MongoStore, TemporaryMongo};
use tokio_util::sync::CancellationToken;

use super::support::{Verdict, all, apply, claims, database, letter, server, stock};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Makes all receipts two days older.
async fn age(at: &TemporaryMongo) -> Verdict {
    let older =
        vec![doc! { "$set": { "processed_at": { "$subtract": ["$processed_at", 2 * 86_400_000_i64] } } }];
    at.database().await.collection::<Document>("oncebox_inbox").update_many(doc! {}, older).await?;
    Ok(())
}

async fn receipts(at: &TemporaryMongo) -> Result<Vec<String>, BoxError> {
    let inbox = at.database().await.collection::<Document>("oncebox_inbox");
    let mut ids: Vec<String> =
        inbox.distinct("message_id", doc! {}).await?.iter().map(|id| id.to_string()).collect();
    ids.sort();
    Ok(ids)
}

async fn purge(store: &MongoStore) -> Result<Purged, BoxError> {
    watched(store, &CancellationToken::new(), &|_| {}).await
}

async fn watched(
    store: &MongoStore,
    stop: &CancellationToken,
    progress: &(dyn Fn(PurgeProgress) + Send + Sync),
) -> Result<Purged, BoxError> {
    let retention = [Retention { consumer: stock(), keep: DAY }];
    let now_ms = Clock::system().now_ms();
    Ok(store.purge(PurgePass { retention: &retention, now_ms, dry_run: false, stop, progress }).await?)
}

/// A replay holds the receipt of its letter in an open transaction. A pass gets past it, by trying the step again after it, and
/// the receipt is young then.
#[tokio::test]
async fn a_replay_and_a_pass_meet_at_the_receipt() -> Verdict {
    let at = database().await;
    let store = at.store();
    let mut claimed = store.claim(&stock(), &claims(&["a", "b"])).await?;
    store.park(&mut claimed.txn, &stock(), &[letter(Some("a"), 1)]).await?;
    store.commit(claimed.txn, None).await?;
    age(&at).await?;
    let number = store.dead_letters(&all()).await?[0].number;
    let (replay, _) = store.take_dead(number).await?.ok_or("the letter is not there")?;
    // For the pass the letter is still there.
    assert_eq!(purge(&store).await?.receipts, 1);
    store.commit(replay, None).await?;
    assert_eq!(purge(&store).await?.receipts, 0, "the replay has made the receipt young");
    assert_eq!(receipts(&at).await?, ["\"a\""]);
    Ok(())
}

/// Replays one by one, and passes beside them: whether a pass sees the letter or the receipt that was renewed, the receipt stays.
#[tokio::test]
async fn replays_and_passes_at_once_keep_every_receipt_that_was_renewed() -> Verdict {
    let at = database().await;
    let store = at.store();
    let ids: Vec<String> = (0..40).map(|n| format!("m{n}")).collect();
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut claimed = store.claim(&stock(), &claims(&names)).await?;
    let letters: Vec<_> = (0..).zip(&ids).map(|(offset, id)| letter(Some(id), offset)).collect();
    store.park(&mut claimed.txn, &stock(), &letters).await?;
    store.commit(claimed.txn, None).await?;
    age(&at).await?;
    let numbers: Vec<i64> = store.dead_letters(&all()).await?.iter().map(|line| line.number).collect();
    let replays = tokio::spawn({
        let store = store.clone();
        async move {
            for number in numbers {
                let (txn, _) = store.take_dead(number).await?.ok_or("the letter is not there")?;
                store.commit(txn, None).await?;
            }
            Ok::<_, BoxError>(())
        }
    });
    while !replays.is_finished() {
        assert_eq!(purge(&store).await?.receipts, 0);
    }
    replays.await??;
    assert_eq!(receipts(&at).await?.len(), 40);
    assert_eq!(apply(&store, &names).await?, [false; 40]);
    Ok(())
}

/// Every step is seen, a pass that is stopped goes on where it was, and the horizon is written down.
#[tokio::test]
async fn a_pass_goes_in_steps_and_on_where_it_was() -> Verdict {
    let at = database().await;
    let store = at.store();
    let ids: Vec<String> = (0..9000).map(|n| format!("m{n}")).collect();
    for ids in ids.chunks(3000) {
        apply(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    }
    age(&at).await?;
    let seen = Mutex::new(Vec::new());
    let stop = CancellationToken::new();
    let first = watched(&store, &stop, &|progress| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
        stop.cancel();
    })
    .await?;
    assert_eq!((first.end, first.receipts), (PassEnd::Stopped, 2000));
    let second = watched(&store, &CancellationToken::new(), &|progress| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
    })
    .await?;
    assert_eq!((second.end, second.receipts), (PassEnd::Finished, 7000));
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(seen.iter().map(|step| step.done).collect::<Vec<_>>(), [2000, 4000, 6000, 8000, 9000]);
    assert!(receipts(&at).await?.is_empty());
    let status = store.status(10).await?;
    assert!(status.consumers[0].purged_before_ms.is_some_and(|ms| ms > 0));
    let mut txn = store.claim(&stock(), &[]).await?.txn;
    assert_eq!(store.purged_before(&mut txn, &stock()).await?, status.consumers[0].purged_before_ms);
    store.rollback(txn).await;
    Ok(())
}

/// The turn is one process's, until it is not heard of any more; whoever has lost it undoes its step.
#[tokio::test(flavor = "multi_thread")]
async fn a_purger_that_lost_its_turn_removes_nothing_more() -> Verdict {
    let at = database().await;
    let store = at.store();
    let ids: Vec<String> = (0..5000).map(|n| format!("m{n}")).collect();
    for ids in ids.chunks(2500) {
        apply(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    }
    age(&at).await?;
    let turn = at.database().await.collection::<Document>("oncebox_purge");
    let held = doc! { "$set": { "owner": "somebody", "leased_until": DateTime::from_millis(Clock::system().now_ms() + 60_000) } };
    turn.update_one(doc! { "_id": 1 }, held.clone()).await?;
    assert_eq!(purge(&store).await?.end, PassEnd::Elsewhere);
    turn.update_one(doc! { "_id": 1 }, doc! { "$set": { "leased_until": DateTime::from_millis(0) } }).await?;

    let handle = tokio::runtime::Handle::current();
    let purged = watched(&store, &CancellationToken::new(), &|_| {
        let taken = turn.update_one(doc! { "_id": 1 }, held.clone());
        tokio::task::block_in_place(|| handle.block_on(taken.into_future()))
            .unwrap_or_else(|e| panic!("{e}"));
    })
    .await?;
    assert_eq!((purged.end, purged.receipts), (PassEnd::Elsewhere, 2000));
    assert_eq!(receipts(&at).await?.len(), 3000);
    Ok(())
}

/// A lane's progress lies in a document of its own; the horizon follows all of them.
#[tokio::test]
async fn the_horizon_follows_the_positions() -> Verdict {
    let at = database().await;
    let store = at.store();
    let key = oncebox_core::store::PositionKey { consumer: stock(), topic: "orders".into(), partition: 0 };
    let owner = store.acquire(&key).await?;
    apply(&store, &["a"]).await?;
    age(&at).await?;
    assert_eq!(purge(&store).await?.receipts, 0, "a partition that was never caught up holds everything");
    let now = Clock::system().now_ms();
    store.record_progress(&owner, Progress { caught_up_ms: Some(now), ..Progress::default() }).await?;
    let status = store.status(10).await?;
    assert_eq!(status.positions.len(), 1);
    assert!(status.positions[0].caught_up_ms.is_some());
    assert_eq!(status.receipts_estimate, 1);
    assert_eq!(purge(&store).await?.receipts, 1);
    Ok(())
}

/// Nobody would ever have the turn, and nobody would say so.
#[tokio::test]
async fn a_database_that_was_not_migrated_cannot_be_purged() -> Verdict {
    let at = TemporaryMongo::empty(&server()).await;
    let error = purge(&at.store()).await.unwrap_err();
    assert!(describe(error.as_ref()).contains("migrate"), "{error}");
    at.store().migrate().await?;
    assert_eq!(purge(&at.store()).await?.end, PassEnd::Finished);
    Ok(())
}
