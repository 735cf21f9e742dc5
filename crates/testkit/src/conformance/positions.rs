//! Positions: only forward, and only by their owner.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{ErrorClass, PositionKey, Positions, Status, Store};

use super::fixture::{Fixture, advance, apply, claims, next, refused};
use super::subject::{Subject, Verdict};

/// Neither a commit nor the choice of a start lowers a position.
pub async fn a_position_only_moves_forward<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let owner = f.store.acquire(&key).await?;
    assert_eq!(owner.next_offset, None);

    f.apply_and(&["a"], advance(&owner, None)).await?;
    assert_eq!(f.store.acquire(&key).await?.next_offset, None);

    let owner = f.store.acquire(&key).await?;
    for (given, stored) in [(10, 10), (7, 10), (11, 11)] {
        f.apply_and(&[&format!("at-{given}")], advance(&owner, Some(given))).await?;
        assert_eq!(next_offset(&f).await?, Some(stored));
    }
    f.apply_and(&["later"], advance(&owner, None)).await?;
    f.store.record_progress(&owner, next(Some(3))).await?;
    assert_eq!(next_offset(&f).await?, Some(11));
    f.store.record_progress(&owner, next(Some(20))).await?;
    assert_eq!(f.store.acquire(&key).await?.next_offset, Some(20));
    Ok(())
}

/// Each consumer, topic and partition has a position of its own.
pub async fn positions_are_apart<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let owner = f.store.acquire(&f.position(0)).await?;
    f.apply_and(&["a"], advance(&owner, Some(5))).await?;

    let billing = ConsumerName::new("billing")?;
    let others = [
        f.position(1),
        PositionKey { topic: "returns".into(), ..f.position(0) },
        PositionKey { consumer: billing, ..f.position(0) },
    ];
    for other in others {
        let taken = f.store.acquire(&other).await?;
        assert_eq!((taken.next_offset, taken.starts), (None, 1), "{other}");
    }
    f.apply_and(&["b"], advance(&owner, Some(6))).await?;
    assert_eq!(f.store.acquire(&f.position(0)).await?.next_offset, Some(6));
    Ok(())
}

/// Every takeover counts; a commit or an orderly release begins anew.
pub async fn starts_are_counted_until_there_is_progress<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let mut epoch = 0;
    for expected in 1..=3 {
        let owner = f.store.acquire(&key).await?;
        assert_eq!(owner.starts, expected);
        assert!(owner.epoch > epoch, "a new owner must have a higher epoch");
        epoch = owner.epoch;
    }
    let owner = f.store.acquire(&key).await?;
    f.apply_and(&["a"], advance(&owner, Some(1))).await?;
    let owner = f.store.acquire(&key).await?;
    assert_eq!(owner.starts, 1, "a commit is progress");
    f.apply_and(&["ahead"], advance(&owner, None)).await?;
    let owner = f.store.acquire(&key).await?;
    assert_eq!(
        owner.starts, 2,
        "a lane that runs ahead says nothing about the message that holds the position"
    );
    f.apply_and(&["b"], advance(&owner, Some(2))).await?;
    let owner = f.store.acquire(&key).await?;
    assert_eq!(owner.starts, 1);

    f.store.acquire(&key).await?;
    f.store.release(&owner).await?;
    let owner = f.store.acquire(&key).await?;
    assert_eq!(owner.starts, 3, "a fenced owner releases nothing");
    f.store.release(&owner).await?;
    assert_eq!(f.store.acquire(&key).await?.starts, 1);
    Ok(())
}

/// A zombie commits nothing: no effect, no receipt, no position.
pub async fn a_stale_owner_is_fenced<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let zombie = f.store.acquire(&key).await?;
    let mut claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    T::add_effect(&mut claimed.txn, "a").await?;
    f.store.rollback(claimed.txn).await;

    let other = f.subject.connect().await?;
    let owner = other.acquire(&key).await?;
    assert!(owner.epoch > zombie.epoch);

    let mut claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    T::add_effect(&mut claimed.txn, "a").await?;
    let error = refused(f.store.commit(claimed.txn, advance(&zombie, Some(9))).await, "a zombie's commit")?;
    assert_eq!(error.class, ErrorClass::Fenced);
    assert_eq!(f.subject.effects().await?, [""; 0]);
    assert_eq!(f.subject.receipts("stock").await?, [""; 0]);

    let error = refused(f.store.record_progress(&zombie, next(Some(9))).await, "a zombie's progress")?;
    assert_eq!(error.class, ErrorClass::Fenced);
    assert_eq!(next_offset(&f).await?, None);

    assert_eq!(apply::<T>(&other, &f.consumer, &["a"], advance(&owner, Some(1))).await?, [true]);
    assert_eq!(f.subject.effects().await?, ["a"]);
    assert_eq!(next_offset(&f).await?, Some(1));
    Ok(())
}

/// A source without positions commits without one.
pub async fn a_commit_without_a_position_moves_none<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.apply(&["a"]).await?;
    assert!(f.store.status(10).await?.positions.is_empty());
    Ok(())
}

/// The stored position of `orders/0`, without taking it over.
async fn next_offset<T: Subject>(f: &Fixture<T>) -> Result<Option<i64>, oncebox_core::error::BoxError> {
    let status = f.store.status(10).await?;
    let position = status.positions.iter().find(|p| p.topic == "orders" && p.partition == 0);
    Ok(position.and_then(|position| position.next_offset))
}
