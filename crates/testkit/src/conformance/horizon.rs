//! The retention horizon follows the stream: the slowest partition that is not retired, and the clock that is behind.

use oncebox_core::error::BoxError;
use oncebox_core::store::{Ownership, Positions, Progress, Status};

use super::fixture::{Fixture, advance};
use super::pass::{DAY, HOUR, ms_ago, now_ms, purge, purge_at};
use super::retention::{assert_near, purged_before};
use super::subject::{Subject, Verdict};

/// Everything that the log held at this time is settled.
async fn caught_up<T: Subject>(f: &Fixture<T>, owner: &Ownership, at_ms: i64) -> Result<(), BoxError> {
    let progress = Progress { caught_up_ms: Some(at_ms), ..Progress::default() };
    Ok(f.store.record_progress(owner, progress).await?)
}

/// Two partitions that have applied `a` and `b` and are caught up.
async fn two_partitions<T: Subject>(f: &Fixture<T>) -> Result<[Ownership; 2], BoxError> {
    let owners = [f.store.acquire(&f.position(0)).await?, f.store.acquire(&f.position(1)).await?];
    for (owner, id) in owners.iter().zip(["a", "b"]) {
        f.apply_and(&[id], advance(owner, Some(1))).await?;
        caught_up(f, owner, now_ms()).await?;
    }
    Ok(owners)
}

async fn ten_days_pass<T: Subject>(f: &Fixture<T>) -> Verdict {
    f.subject.age_receipts("stock", 10 * DAY).await?;
    f.subject.age_positions("stock", 10 * DAY).await
}

/// A consumer that was away for days finds the receipts it needs for what it missed, and no more.
pub async fn the_horizon_stands_still_while_a_consumer_is_down<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let first = f.store.acquire(&f.position(0)).await?;
    f.apply_and(&["a"], advance(&first, Some(1))).await?;
    f.subject.age_receipts("stock", 12 * HOUR).await?;
    f.apply_and(&["b"], advance(&first, Some(2))).await?;
    caught_up(&f, &first, now_ms()).await?;
    ten_days_pass(&f).await?;
    // Taking a partition over is not progress.
    f.store.acquire(&f.position(0)).await?;

    assert_eq!(purge(&f, DAY).await?.receipts, 0);
    assert_eq!(purge(&f, 6 * HOUR).await?.receipts, 1);
    assert_eq!(f.subject.receipts("stock").await?, ["b"]);
    assert_near(purged_before(&f).await?, 10 * DAY + 6 * HOUR);
    Ok(())
}

/// A partition that is halted keeps the receipts that its next messages may be copies of, while another one flows.
pub async fn the_slowest_partition_holds_the_horizon<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let [halted, flowing] = two_partitions(&f).await?;
    ten_days_pass(&f).await?;
    f.apply_and(&["c"], advance(&flowing, Some(2))).await?;
    caught_up(&f, &flowing, now_ms()).await?;

    assert_eq!(purge(&f, DAY).await?.receipts, 0);
    assert_eq!(f.fresh(&["a"]).await?, [false], "the next message of the halted partition is a copy");

    caught_up(&f, &halted, now_ms()).await?;
    assert_eq!(purge(&f, DAY).await?.receipts, 2);
    assert_eq!(f.subject.receipts("stock").await?, ["c"]);
    Ok(())
}

/// After an outage the backlog may hold copies of what was applied before it. The first commit does not end that.
pub async fn copies_in_a_backlog_are_recognised_until_it_is_caught_up<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let owner = f.store.acquire(&f.position(0)).await?;
    f.apply_and(&["a"], advance(&owner, Some(1))).await?;
    caught_up(&f, &owner, now_ms()).await?;
    ten_days_pass(&f).await?;

    f.apply_and(&["b"], advance(&owner, Some(2))).await?;
    assert_eq!(purge(&f, DAY).await?.receipts, 0);
    caught_up(&f, &owner, ms_ago(9 * DAY + 12 * HOUR)).await?;
    assert_eq!(purge(&f, DAY).await?.receipts, 0);
    assert_eq!(f.fresh(&["a"]).await?, [false]);

    caught_up(&f, &owner, now_ms()).await?;
    assert_eq!(purge(&f, DAY).await?.receipts, 1);
    assert_eq!(f.fresh(&["a", "b"]).await?, [true, false]);
    Ok(())
}

/// A partition of a topic that is gone lets go of the horizon by an operator's word, and only until it is taken over again.
pub async fn a_retired_partition_does_not_hold_the_horizon<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    two_partitions(&f).await?;
    let mut gone = f.position(3);
    gone.topic = "old-orders".into();
    let owner = f.store.acquire(&gone).await?;
    assert!(!owner.was_retired);
    ten_days_pass(&f).await?;
    for partition in [0, 1] {
        caught_up(&f, &f.store.acquire(&f.position(partition)).await?, now_ms()).await?;
    }
    assert_eq!(purge(&f, DAY).await?.receipts, 0);

    assert_eq!(f.store.retire_positions(&f.consumer, "older-orders").await?, 0);
    assert_eq!(f.store.retire_positions(&f.consumer, "old-orders").await?, 1);
    let retired = |f: &[oncebox_core::store::PositionStatus]| f.iter().map(|p| p.retired).collect::<Vec<_>>();
    assert_eq!(retired(&f.store.status(10).await?.positions), [true, false, false]);
    assert_eq!(purge(&f, DAY).await?.receipts, 2);

    let owner = f.store.acquire(&gone).await?;
    assert!(owner.was_retired, "whoever takes it over is told");
    assert_eq!(retired(&f.store.status(10).await?.positions), [false; 3]);
    f.apply(&["c"]).await?;
    f.subject.age_receipts("stock", 10 * DAY).await?;
    assert_eq!(purge(&f, DAY).await?.receipts, 0);
    assert!(!f.store.acquire(&gone).await?.was_retired);

    // So does a message that is applied while somebody retires it.
    let owner = f.store.acquire(&gone).await?;
    f.store.retire_positions(&f.consumer, "old-orders").await?;
    f.apply_and(&["d"], advance(&owner, Some(1))).await?;
    assert_eq!(retired(&f.store.status(10).await?.positions), [false; 3]);
    Ok(())
}

/// Nobody knows what such a partition has yet to read, so everything stays.
pub async fn a_partition_never_caught_up_holds_the_horizon<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let [_, second] = two_partitions(&f).await?;
    let new = f.store.acquire(&f.position(2)).await?;
    f.apply_and(&["c"], advance(&new, Some(1))).await?;
    f.subject.age_receipts("stock", 100 * DAY).await?;
    assert_eq!(purge(&f, DAY).await?.receipts, 0);
    assert_eq!(purged_before(&f).await?, None);

    // The word of an operator that moves a position makes what was known about it void.
    caught_up(&f, &new, now_ms()).await?;
    f.store.move_position(&second.key, 0, None).await?;
    assert_eq!(purge(&f, DAY).await?.receipts, 0);
    caught_up(&f, &f.store.acquire(&second.key).await?, now_ms()).await?;
    assert_eq!(purge(&f, DAY).await?.receipts, 3);
    Ok(())
}

/// Of the clocks of the database and of the process, the one that is behind counts: no single one that jumps empties the
/// table.
pub async fn a_clock_that_is_ahead_purges_nothing_too_early<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.apply(&["a"]).await?;
    f.subject.age_receipts("stock", 12 * HOUR).await?;
    // The process is ten years ahead of the database.
    assert_eq!(purge_at(&f, DAY, now_ms() + 3650 * 86_400_000).await?.receipts, 0);
    // The database is ten days ahead of the process.
    f.subject.age_receipts("stock", 2 * DAY).await?;
    assert_eq!(purge_at(&f, DAY, ms_ago(10 * DAY)).await?.receipts, 0);
    assert_eq!(purged_before(&f).await?, None);

    // The same where a partition is caught up.
    let owner = f.store.acquire(&f.position(0)).await?;
    caught_up(&f, &owner, now_ms() + 3650 * 86_400_000).await?;
    assert_eq!(purge_at(&f, DAY, ms_ago(10 * DAY)).await?.receipts, 0);
    assert_eq!(purge_at(&f, 3 * DAY, now_ms() + 3650 * 86_400_000).await?.receipts, 0);
    assert_eq!(purge(&f, DAY).await?.receipts, 1);
    Ok(())
}
