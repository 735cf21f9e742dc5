//! Old code and oncebox write to one collection: in both orders, and at the same time.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use oncebox_core::store::{ErrorClass, Store};
use oncebox_mongodb::MongoStore;

use super::super::support::{Verdict, claims, stock};
use super::by_hand::{Old, OldProcess, WAYS, claim, ids, inbox_event, new_apply, once};

#[tokio::test(flavor = "multi_thread")]
async fn each_knows_what_the_other_has_applied() -> Verdict {
    for old in WAYS {
        let shop = inbox_event().await;
        let mut process = OldProcess::start(&shop).await;
        assert!(process.apply(old, "a").await?);
        assert_eq!(new_apply(&shop.store, &["a", "b"]).await, [false, true], "{old:?}");
        assert!(!process.apply(old, "b").await?, "{old:?}");
        assert_eq!(shop.effects().await, once(&["a", "b"]), "{old:?}");
    }
    Ok(())
}

/// A receipt that stands in an open transaction of the old code is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn oncebox_goes_by_the_end_of_the_old_code() -> Verdict {
    for old in [Old::LookFirst, Old::InsertFirst] {
        for commit in [true, false] {
            let shop = inbox_event().await;
            let mut process = OldProcess::start(&shop).await;
            assert!(process.begin(old, "a").await?);
            let store = shop.store.clone();
            let new = tokio::spawn(async move { new_apply(&store, &["a"]).await });
            process.effect(old, "a").await?;
            if commit {
                process.session.commit_transaction().await?;
            } else {
                process.session.abort_transaction().await?;
            }
            assert_eq!(new.await?, [!commit], "{old:?}");
            assert_eq!(shop.effects().await, once(&["a"]), "{old:?}");
        }
    }
    Ok(())
}

/// And the other way round. Without a transaction the old code waits at its insert; with one it is told to try again.
#[tokio::test(flavor = "multi_thread")]
async fn the_old_code_goes_by_the_end_of_oncebox() -> Verdict {
    for old in WAYS {
        for commit in [true, false] {
            let shop = inbox_event().await;
            let mut claimed = claim(&shop.store, "stock", &ids(&["a"])).await?;
            claimed.txn.collection::<Document>("effects").insert_one(doc! { "id": "a" }).await?;
            let mut process = OldProcess::start(&shop).await;
            let waits = tokio::spawn(async move { process.apply_at_last(old, "a").await });
            if commit {
                shop.store.commit(claimed.txn, None).await?;
            } else {
                shop.store.rollback(claimed.txn).await;
            }
            assert_eq!(waits.await?, !commit, "{old:?}");
            assert_eq!(shop.effects().await, once(&["a"]), "{old:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_under_load_applies_each_message_once() -> Verdict {
    const MESSAGES: usize = 120;
    let shop = inbox_event().await;
    let names: Vec<String> = (0..MESSAGES).map(|n| format!("order-{n}")).collect();
    let mut tasks = Vec::new();
    for (nth, old) in WAYS.into_iter().enumerate() {
        let (mut names, mut process) = (names.clone(), OldProcess::start(&shop).await);
        fastrand::Rng::with_seed(nth as u64).shuffle(&mut names);
        tasks.push(tokio::spawn(async move {
            let mut applied = 0;
            for id in &names {
                applied += usize::from(process.apply_at_last(old, id).await);
            }
            applied
        }));
    }
    for nth in 0..3 {
        let (mut names, store) = (names.clone(), shop.store.clone());
        fastrand::Rng::with_seed(100 + nth).shuffle(&mut names);
        tasks.push(tokio::spawn(async move {
            let mut applied = 0;
            for batch in names.chunks(15) {
                let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
                applied += new_apply(&store, &batch).await.iter().filter(|fresh| **fresh).count();
            }
            applied
        }));
    }
    let mut applied = 0;
    for task in tasks {
        applied += task.await?;
    }
    let effects = shop.effects().await;
    assert_eq!((applied, effects.len()), (MESSAGES, MESSAGES));
    assert!(effects.values().all(|times| *times == 1), "{effects:?}");
    Ok(())
}

/// No wait is without a bound, and no message is blamed for what another transaction holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_that_is_held_for_long_is_nobodys_fault() -> Verdict {
    let shop = inbox_event().await;
    let mapping = shop.store.adopted().ok_or("nothing is adopted")?.clone();
    let held = claim(&shop.store, "stock", &ids(&["a"])).await?;
    let hasty =
        MongoStore::builder(shop.temporary.url()).lock_timeout(Duration::from_millis(50)).adopt(mapping);
    let hasty = hasty.connect().await?;
    let error = claim(&hasty, "stock", &ids(&["a", "b"])).await.err();
    assert_eq!(error.map(|error| error.class), Some(ErrorClass::Away));
    shop.store.rollback(held.txn).await;
    assert_eq!(new_apply(&hasty, &["a", "b"]).await, [true, true]);
    Ok(())
}

/// A transaction of the application cannot begin anew: what was committed after its snapshot is an error, and never a guess.
#[tokio::test(flavor = "multi_thread")]
async fn the_bare_claim_never_guesses() -> Verdict {
    let shop = inbox_event().await;
    let mut session = shop.store.database().client().start_session().await?;
    session.start_transaction().await?;
    shop.store.database().collection::<Document>("effects").find_one(doc! {}).session(&mut session).await?;
    let mut tx = oncebox_mongodb::MongoTx::new(session, shop.store.database().clone());
    assert_eq!(new_apply(&shop.store, &["a"]).await, [true]);
    let late = shop.store.claim_within(&mut tx, &stock(), &claims(&["a", "b"])).await;
    assert_eq!(late.err().map(|error| error.class), Some(ErrorClass::Transient));
    let mut session = tx.into_session();
    session.abort_transaction().await.ok();
    session.start_transaction().await?;
    let mut tx = oncebox_mongodb::MongoTx::new(session, shop.store.database().clone());
    assert_eq!(shop.store.claim_within(&mut tx, &stock(), &claims(&["a", "b"])).await?, [false, true]);
    tx.into_session().commit_transaction().await?;
    assert_eq!(shop.documents("inbox_event").await.len(), 2);
    Ok(())
}
