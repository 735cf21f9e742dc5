//! Lanes of a partition that commit side by side, and owners that are replaced meanwhile.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use oncebox_core::error::BoxError;
use oncebox_core::store::{ErrorClass, Ownership, Positions, Progress, Status, Store, StoreError};
use oncebox_mongodb::MongoStore;

use super::support::{Verdict, claim, database, orders, receipts, to};

/// A server that is so busy that it ends transactions for their age says nothing about lanes: the same again, on another database.
async fn on_a_server_that_keeps_up(scenario: impl AsyncFn() -> Verdict) -> Verdict {
    for _ in 0..4 {
        match scenario().await {
            Err(error) if error.downcast_ref::<StoreError>().is_some_and(ended_by_the_server) => {}
            verdict => return verdict,
        }
    }
    scenario().await
}

/// `NoSuchTransaction`. Two lanes that want the same document are another code.
fn ended_by_the_server(error: &StoreError) -> bool {
    error.source.to_string().ends_with("(251)")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_that_overlap_do_not_conflict() -> Verdict {
    on_a_server_that_keeps_up(overlapping_lanes).await
}

async fn overlapping_lanes() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let owner = store.acquire(&orders()).await?;
    for round in 0..3 {
        let mut open = Vec::new();
        for lane in 0..8 {
            open.push(claim(&store, &format!("{round}-{lane}")).await?);
        }
        for (lane, claimed) in (0..).zip(open) {
            store.commit(claimed.txn, to(&owner, round * 8 + lane + 1)).await?;
        }
    }
    assert_eq!(receipts(&temporary).await?.len(), 24);
    let taken = store.acquire(&orders()).await?;
    assert_eq!((taken.next_offset, taken.commits, taken.starts), (Some(24), 24, 1));
    Ok(())
}

/// How many of these lanes, all open at once, could not commit.
async fn refused(store: &MongoStore, owner: &Ownership, round: &str, lanes: i64) -> Result<usize, BoxError> {
    let mut open = Vec::new();
    for lane in 0..lanes {
        open.push((lane, claim(store, &format!("{round}-{lane}")).await?));
    }
    let mut refused = 0;
    for (lane, claimed) in open {
        match store.commit(claimed.txn, to(owner, lane + 1)).await {
            Ok(()) => {}
            Err(error) if error.class == ErrorClass::Transient && !ended_by_the_server(&error) => {
                refused += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_grow_with_the_lanes_and_nobody_is_fenced() -> Verdict {
    on_a_server_that_keeps_up(more_lanes_than_documents).await
}

async fn more_lanes_than_documents() -> Verdict {
    let temporary = database().await;
    let store = MongoStore::builder(temporary.url()).max_connections(32).connect().await?;
    let owner = store.acquire(&orders()).await?;
    assert_eq!(refused(&store, &owner, "a", 12).await?, 4, "there are eight documents");
    assert_eq!(refused(&store, &owner, "b", 12).await?, 0, "there are sixteen");
    assert_eq!(refused(&store, &owner, "c", 16).await?, 0);
    let taken = store.acquire(&orders()).await?;
    assert_eq!((taken.commits, taken.next_offset), (8 + 12 + 16, Some(16)));
    // Whoever is replaced makes no more documents.
    let lanes = temporary.database().await.collection::<Document>("oncebox_position_lane");
    let error = refused(&store, &owner, "d", 20).await.unwrap_err();
    assert!(error.to_string().contains("taken over"), "{error}");
    assert_eq!(lanes.count_documents(doc! {}).await?, 7);
    Ok(())
}

/// All of them find no document, at the same moment, and one of them makes more for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_that_are_too_many_at_once_make_documents_once() -> Verdict {
    on_a_server_that_keeps_up(too_many_lanes_at_once).await
}

async fn too_many_lanes_at_once() -> Verdict {
    let temporary = database().await;
    // Whoever goes on trying what cannot go well never ends.
    let store = MongoStore::builder(temporary.url()).max_connections(32).lock_timeout(Duration::ZERO);
    let store = store.connect().await?;
    let owner = store.acquire(&orders()).await?;
    let lanes = temporary.database().await.collection::<Document>("oncebox_position_lane");
    for (round, refused) in [("a", 8), ("b", 0), ("c", 0)] {
        let mut open = Vec::new();
        for lane in 0..16 {
            open.push((lane, claim(&store, &format!("{round}-{lane}")).await?));
        }
        let commits = open.into_iter().map(|(lane, claimed)| store.commit(claimed.txn, to(&owner, lane + 1)));
        let commits = tokio::time::timeout(Duration::from_secs(60), join_all(commits)).await;
        let mut errors: Vec<_> = commits?.into_iter().filter_map(Result::err).collect();
        if let Some(at) = errors.iter().position(ended_by_the_server) {
            return Err(errors.swap_remove(at).into());
        }
        assert!(errors.iter().all(|error| error.class == ErrorClass::Transient), "{errors:?}");
        assert_eq!(errors.len(), refused, "{round}: {errors:?}");
        assert_eq!(lanes.count_documents(doc! {}).await?, 15, "{round}: beside the position's own");
    }
    assert_eq!(store.acquire(&orders()).await?.commits, 8 + 16 + 16);
    Ok(())
}

/// Transactions of different lengths, as many at once as there are documents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_lanes_of_any_length_need_eight_documents() -> Verdict {
    on_a_server_that_keeps_up(eight_lanes_of_any_length).await
}

async fn eight_lanes_of_any_length() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let owner = store.acquire(&orders()).await?;
    let mut open = std::collections::VecDeque::new();
    for n in 0..100_i64 {
        open.push_back(claim(&store, &format!("{n}")).await?);
        while open.len() >= if n < 90 { 8 } else { 1 } {
            // Neither the oldest nor the youngest, always another one.
            let at = usize::try_from(n * 7)? % open.len();
            if let Some(claimed) = open.remove(at) {
                store.commit(claimed.txn, to(&owner, n)).await?;
            }
        }
    }
    assert_eq!(store.acquire(&orders()).await?.commits, 100);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_beside_an_open_batch_does_not_hurt_it() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let owner = store.acquire(&orders()).await?;
    let claimed = claim(&store, "a").await?;
    let caught_up = Progress { caught_up_ms: Some(1_000), ..Progress::default() };
    store.record_progress(&owner, caught_up).await?;
    store.commit(claimed.txn, to(&owner, 1)).await?;
    // What the batch wrote beside the position's own document is folded into it.
    store.record_progress(&owner, Progress { caught_up_ms: Some(2_000), ..Progress::default() }).await?;
    let own = temporary.database().await.collection::<Document>("oncebox_position");
    let own = own.find_one(doc! {}).await?.unwrap();
    assert_eq!(own.get_i64("next_offset")?, 1);
    Ok(())
}

/// Whichever document its transaction would write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_owner_commits_in_no_lane() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let zombie = store.acquire(&orders()).await?;
    let mut open = Vec::new();
    for lane in 0..8 {
        open.push(claim(&store, &format!("{lane}")).await?);
    }
    let late = claim(&store, "late").await?;
    let other = MongoStore::connect(temporary.url()).await?;
    let owner = other.acquire(&orders()).await?;
    for claimed in open {
        let error = store.commit(claimed.txn, to(&zombie, 9)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Fenced, "{error}");
    }
    store.rollback(late.txn).await;
    let after = claim(&store, "after").await?;
    let error = store.commit(after.txn, to(&zombie, 9)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Fenced, "{error}");
    assert!(receipts(&temporary).await?.is_empty());
    let claimed = claim(&other, "0").await?;
    other.commit(claimed.txn, to(&owner, 1)).await?;
    assert_eq!(receipts(&temporary).await?, ["0"]);
    Ok(())
}

/// A database that was restored from an older copy, under the feet of an owner with two lanes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_knows_more_than_its_document_is_fenced() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let owner = store.acquire(&orders()).await?;
    let (first, second) = (claim(&store, "a").await?, claim(&store, "b").await?);
    store.commit(first.txn, to(&owner, 1)).await?;
    let lanes = temporary.database().await.collection::<Document>("oncebox_position_lane");
    let copy = lanes.find_one(doc! { "_id.lane": 1 }).await?.unwrap();
    store.commit(second.txn, to(&owner, 2)).await?;
    lanes.replace_one(doc! { "_id.lane": 1 }, copy).await?;
    // The document that was written last is the one that is taken next.
    let claimed = claim(&store, "c").await?;
    let error = store.commit(claimed.txn, to(&owner, 3)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Fenced, "{error}");
    Ok(())
}

/// Retired, lived on in a lane document, and retired again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_can_be_retired_again() -> Verdict {
    let temporary = database().await;
    let store = temporary.store();
    let owner = store.acquire(&orders()).await?;
    let (first, second) = (claim(&store, "a").await?, claim(&store, "b").await?);
    store.commit(first.txn, to(&owner, 1)).await?;
    assert_eq!(store.retire_positions(&orders().consumer, "orders").await?, 1);
    store.commit(second.txn, to(&owner, 2)).await?;
    let retired = async || Ok::<_, BoxError>(store.status(1).await?.positions.iter().all(|p| p.retired));
    assert!(!retired().await?, "a commit after it says that the log lives");
    assert_eq!(store.retire_positions(&orders().consumer, "orders").await?, 1);
    assert!(retired().await?);
    assert_eq!(store.retire_positions(&orders().consumer, "orders").await?, 0);
    Ok(())
}
