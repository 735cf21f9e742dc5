//! Attempts that are written down beforehand, for messages that kill the process.

use oncebox_core::store::{Advance, Duplicates, ErrorClass, Positions, Store};

use super::fixture::{Fixture, advance, claims, next, refused};
use super::subject::{Subject, Verdict};

/// Attempts add up over owners, per offset.
pub async fn attempts_are_counted_and_survive<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let owner = f.store.acquire(&key).await?;
    assert!(!owner.attempts_recorded);
    assert_eq!(f.store.record_attempt(&owner, 7).await?, 1);
    assert_eq!(f.store.record_attempt(&owner, 7).await?, 2);
    assert_eq!(f.store.record_attempt(&owner, 8).await?, 1);

    let next = f.subject.connect().await?;
    let owner = next.acquire(&key).await?;
    assert!(owner.attempts_recorded);
    assert_eq!(next.record_attempt(&owner, 7).await?, 3);
    assert!(!f.store.acquire(&f.position(1)).await?.attempts_recorded, "another partition has none");
    Ok(())
}

/// A commit removes the attempt it settles and no other; a rollback removes none.
pub async fn an_attempt_is_settled_with_its_transaction<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let owner = f.store.acquire(&key).await?;
    f.store.record_attempt(&owner, 7).await?;

    let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    f.store.rollback(claimed.txn).await;
    assert_eq!(f.store.record_attempt(&owner, 7).await?, 2);
    f.store.record_attempt(&owner, 8).await?;

    let settle = |offset| {
        let progress = next(Some(offset + 1));
        Some(Advance {
            owner: &owner,
            progress,
            applied: 1,
            duplicates: Duplicates::default(),
            finished_attempt: Some(offset),
        })
    };
    f.apply_and(&["a"], settle(7)).await?;
    assert_eq!(f.store.record_attempt(&owner, 7).await?, 1);
    assert_eq!(f.store.record_attempt(&owner, 8).await?, 2);
    f.apply_and(&["a"], settle(7)).await?;
    f.apply_and(&["b"], settle(8)).await?;
    assert!(!f.store.acquire(&key).await?.attempts_recorded);
    Ok(())
}

/// A zombie does not count against a message.
pub async fn a_stale_owner_records_no_attempt<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let zombie = f.store.acquire(&f.position(0)).await?;
    let owner = f.store.acquire(&f.position(0)).await?;
    let error = refused(f.store.record_attempt(&zombie, 7).await, "a zombie's attempt")?;
    assert_eq!(error.class, ErrorClass::Fenced);
    assert_eq!(f.store.record_attempt(&owner, 7).await?, 1);
    Ok(())
}

/// An orderly end is not a crash: nothing of it counts against a message later.
pub async fn attempts_are_forgotten_after_a_release<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let neighbour = f.store.acquire(&f.position(1)).await?;
    f.store.record_attempt(&neighbour, 7).await?;
    let zombie = f.store.acquire(&key).await?;
    let owner = f.store.acquire(&key).await?;
    f.store.record_attempt(&owner, 7).await?;
    f.store.record_attempt(&owner, 9).await?;

    f.store.release(&zombie).await?;
    assert_eq!(f.store.record_attempt(&owner, 7).await?, 2, "a fenced owner takes nothing along");
    f.store.release(&owner).await?;
    let owner = f.store.acquire(&key).await?;
    assert!(!owner.attempts_recorded);
    assert_eq!(f.store.record_attempt(&owner, 7).await?, 1);
    assert_eq!(f.store.record_attempt(&neighbour, 7).await?, 2, "another partition keeps its own");
    Ok(())
}

/// What lies below the position is settled, so an attempt at it says nothing any more.
pub async fn attempts_below_the_position_are_forgotten<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let owner = f.store.acquire(&key).await?;
    for offset in [6, 7, 8] {
        f.store.record_attempt(&owner, offset).await?;
    }
    f.apply_and(&["a"], advance(&owner, Some(8))).await?;
    let owner = f.store.acquire(&key).await?;
    assert!(owner.attempts_recorded);
    assert_eq!(f.store.record_attempt(&owner, 7).await?, 1);
    assert_eq!(f.store.record_attempt(&owner, 8).await?, 2);

    f.store.record_progress(&owner, next(Some(9))).await?;
    assert!(!f.store.acquire(&key).await?.attempts_recorded);
    Ok(())
}

/// An attempt that ended without ending the process is taken back; the others at the same offset stay.
pub async fn a_withdrawn_attempt_does_not_count<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let zombie = f.store.acquire(&key).await?;
    let owner = f.store.acquire(&key).await?;
    for expected in [1, 2, 3] {
        assert_eq!(f.store.record_attempt(&owner, 7).await?, expected);
    }
    f.store.record_attempt(&owner, 8).await?;
    f.store.withdraw_attempt(&zombie, 7).await?;
    f.store.withdraw_attempt(&owner, 7).await?;
    assert_eq!(f.store.record_attempt(&owner, 7).await?, 3);

    for _ in 0..3 {
        f.store.withdraw_attempt(&owner, 7).await?;
    }
    assert!(f.store.acquire(&key).await?.attempts_recorded, "of the other offset");
    let owner = f.store.acquire(&key).await?;
    f.store.withdraw_attempt(&owner, 8).await?;
    f.store.withdraw_attempt(&owner, 8).await?;
    assert!(!f.store.acquire(&key).await?.attempts_recorded);
    Ok(())
}
