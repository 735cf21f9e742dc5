//! A transaction is whole or nothing, however it ends, and a copy of a message waits for it.

use std::time::Duration;

use oncebox_core::store::{Claimed, ErrorClass, Store};
use tokio::task::JoinHandle;

use super::fixture::{Fixture, apply, claims};
use super::subject::{Subject, Verdict};

/// Dropping a transaction undoes it, and the store goes on: more often than any pool has connections.
pub async fn a_dropped_transaction_leaves_nothing<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    for _ in 0..20 {
        let mut claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
        assert_eq!(claimed.fresh, [true]);
        T::add_effect(&mut claimed.txn, "a").await?;
        drop(claimed);
    }
    assert_eq!(f.apply(&["a"]).await?, [true]);
    assert_eq!(f.subject.effects().await?, ["a"]);
    Ok(())
}

/// A task that is aborted at any moment (here: after ever longer delays) leaves no open transaction behind.
pub async fn an_aborted_task_leaves_nothing<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    for delay in 0..20 {
        let (store, consumer) = (f.store.clone(), f.consumer.clone());
        let task = tokio::spawn(async move {
            let mut claimed = store.claim(&consumer, &claims(&consumer, "", &["a"])?).await?;
            loop {
                T::add_effect(&mut claimed.txn, "a").await?;
            }
            #[allow(unreachable_code)]
            Verdict::Ok(())
        });
        tokio::time::sleep(Duration::from_micros(delay * 300)).await;
        task.abort();
        if let Ok(ended) = task.await {
            ended?;
        }
    }
    assert_eq!(f.apply(&["a"]).await?, [true]);
    assert_eq!(f.subject.effects().await?, ["a"]);
    Ok(())
}

/// A rollback gives the connection back.
pub async fn a_rolled_back_connection_is_used_again<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    for _ in 0..50 {
        assert_eq!(f.fresh(&["a"]).await?, [true]);
    }
    Ok(())
}

/// The outcome of an open transaction is never guessed: a copy waits for it, and then is a duplicate.
pub async fn a_concurrent_copy_waits_and_is_a_duplicate<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let (first, copy) = first_and_copy(&f).await?;
    f.store.commit(first.txn, None).await?;
    assert_eq!(copy.await??, [false]);
    assert_eq!(f.subject.effects().await?, ["a"]);
    Ok(())
}

/// If the transaction that the copy waits for is rolled back, the copy is the one that counts.
pub async fn a_concurrent_copy_is_fresh_if_the_first_rolls_back<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let (first, copy) = first_and_copy(&f).await?;
    f.store.rollback(first.txn).await;
    assert_eq!(copy.await??, [true]);
    assert_eq!(f.subject.effects().await?, ["a"]);
    Ok(())
}

/// The same when its task just went away.
pub async fn a_concurrent_copy_is_fresh_if_the_first_is_dropped<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let (first, copy) = first_and_copy(&f).await?;
    drop(first);
    assert_eq!(copy.await??, [true]);
    assert_eq!(f.subject.effects().await?, ["a"]);
    Ok(())
}

type Copy = JoinHandle<Result<Vec<bool>, oncebox_core::error::BoxError>>;

/// An open transaction that applies `a`, and another process that tries the same and does not get through.
async fn first_and_copy<T: Subject>(
    f: &Fixture<T>,
) -> Result<(Claimed<<T::Store as Store>::Txn>, Copy), oncebox_core::error::BoxError> {
    let mut first = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    T::add_effect(&mut first.txn, "a").await?;
    let (other, consumer) = (f.subject.connect().await?, f.consumer.clone());
    let copy = tokio::spawn(async move { apply::<T>(&other, &consumer, &["a"], None).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!copy.is_finished(), "the copy did not wait for the open transaction");
    Ok((first, copy))
}

/// A handler that swallows an error: databases differ in whether the transaction can go on, but it commits whole or not
/// at all, and says which.
pub async fn a_swallowed_error_does_not_tear_the_transaction<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    T::add_effect(&mut claimed.txn, "a").await?;
    assert!(T::violate_unique(&mut claimed.txn).await.is_err());
    let committed = f.store.commit(claimed.txn, None).await.is_ok();

    let expected: &[&str] = if committed { &["a"] } else { &[] };
    assert_eq!(f.subject.effects().await?, expected);
    assert_eq!(f.subject.receipts("stock").await?, expected);
    Ok(())
}

/// The message is to blame for a violated constraint, not the database.
pub async fn a_unique_violation_is_a_failure<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    let Err(error) = T::violate_unique(&mut claimed.txn).await else {
        return Err("the statement violated nothing".into());
    };
    assert_eq!(<T::Store as Store>::classify(error.as_ref()), ErrorClass::Failed);
    f.store.rollback(claimed.txn).await;
    Ok(())
}
