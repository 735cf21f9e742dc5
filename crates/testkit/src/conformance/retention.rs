//! Retention: a promise about how long duplicates are recognised.

use std::time::{Duration, SystemTime};

use oncebox_core::{Admin, BoxError, ConsumerName, Purged, Retention, Store, Tenant};

use super::fixture::{Fixture, advance, apply, claims, letter};
use super::subject::{Subject, Verdict};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn keep<T: Subject>(f: &Fixture<T>, keep: Duration) -> [Retention; 1] {
    [Retention { consumer: f.consumer.clone(), keep }]
}

/// What is older than the horizon goes, the rest stays, and so do consumers that nobody named.
pub async fn purge_removes_what_is_older_than_the_horizon<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let billing = ConsumerName::new("billing")?;
    f.apply(&["old-1", "old-2"]).await?;
    apply::<T>(&f.store, &billing, &["old-1"], None).await?;
    f.subject.age_receipts("stock", DAY + HOUR).await?;
    f.subject.age_receipts("billing", 9 * DAY).await?;
    f.apply(&["young"]).await?;
    assert_eq!(horizon(&f).await?, None, "nothing was purged yet");

    assert_eq!(f.store.purge(&keep(&f, DAY), false).await?.receipts, 2);
    assert_eq!(f.subject.receipts("stock").await?, ["young"]);
    assert_eq!(f.subject.receipts("billing").await?, ["old-1"]);
    assert_eq!(f.store.purge(&keep(&f, DAY), false).await?.receipts, 0);
    assert_near(horizon(&f).await?, DAY);

    // A longer retention from now on does not bring back what is gone.
    f.store.purge(&keep(&f, 9 * DAY), false).await?;
    assert_near(horizon(&f).await?, DAY);
    assert_eq!(f.fresh(&["old-1", "young"]).await?, [true, false]);
    Ok(())
}

/// A message that lies in the dead letters may be replayed at any time, so copies of it stay duplicates.
pub async fn purge_keeps_receipts_of_dead_letters<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut of_tenant = letter(Some("b"), 2);
    of_tenant.tenant = Tenant::new("acme")?;
    f.park(&[letter(Some("a"), 1), of_tenant]).await?;
    f.apply(&["b", "c"]).await?;
    f.subject.age_receipts("stock", 2 * DAY).await?;

    assert_eq!(f.store.purge(&keep(&f, DAY), false).await?.receipts, 2);
    assert_eq!(f.subject.receipts("stock").await?, ["a", "b"]);
    let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "acme", &["b"])?).await?;
    assert_eq!(claimed.fresh, [false], "the one of the tenant that has the letter");
    f.store.rollback(claimed.txn).await;
    Ok(())
}

/// A consumer that was away for a week finds the receipts it needs for what it missed.
pub async fn the_horizon_stands_still_while_a_consumer_is_down<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let first = f.store.acquire(&f.position(0)).await?;
    let second = f.store.acquire(&f.position(1)).await?;
    f.apply_and(&["a"], advance(&first, Some(1))).await?;
    f.subject.age_receipts("stock", 12 * HOUR).await?;
    f.apply_and(&["b"], advance(&second, Some(1))).await?;
    f.subject.age_receipts("stock", 7 * DAY).await?;
    f.subject.age_positions("stock", 7 * DAY).await?;
    // To take a partition over is no progress.
    f.store.acquire(&f.position(0)).await?;

    assert_eq!(f.store.purge(&keep(&f, DAY), false).await?.receipts, 0);
    assert_eq!(f.store.purge(&keep(&f, 6 * HOUR), false).await?.receipts, 1);
    assert_eq!(f.subject.receipts("stock").await?, ["b"]);
    assert_near(horizon(&f).await?, 7 * DAY + 6 * HOUR);

    // Progress on one partition is progress of the consumer.
    f.apply_and(&["c"], advance(&second, Some(2))).await?;
    assert_eq!(f.store.purge(&keep(&f, DAY), false).await?.receipts, 1);
    assert_eq!(f.subject.receipts("stock").await?, ["c"]);
    Ok(())
}

/// A dry run counts what would go and changes nothing.
pub async fn purge_can_only_count<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.apply(&["a", "b"]).await?;
    f.subject.age_receipts("stock", 2 * DAY).await?;
    f.apply(&["c"]).await?;
    for _ in 0..2 {
        assert_eq!(f.store.purge(&keep(&f, DAY), true).await?.receipts, 2);
    }
    assert_eq!(horizon(&f).await?, None);
    assert_eq!(f.subject.receipts("stock").await?, ["a", "b", "c"]);
    assert_eq!(f.store.purge(&[], false).await?, Purged::default());
    assert_eq!(f.store.purge(&keep(&f, Duration::MAX), false).await?, Purged::default());
    Ok(())
}

/// One pass gets to the end, however many steps it takes, and leaves what is young.
pub async fn purge_gets_through_many_receipts<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let (mut old, mut young) = (Vec::new(), Vec::new());
    for n in 0..6000 {
        old.push(format!("old-{n}"));
        young.push(format!("young-{n}"));
    }
    for (names, age) in [(&old, 2 * DAY), (&young, Duration::ZERO)] {
        let ids: Vec<&str> = names.iter().map(String::as_str).collect();
        let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &ids)?).await?;
        f.store.commit(claimed.txn, None).await?;
        f.subject.age_receipts("stock", age).await?;
    }
    assert_eq!(f.store.purge(&keep(&f, DAY), false).await?.receipts, 6000);
    assert!(f.subject.receipts("stock").await?.iter().all(|id| id.starts_with("young")));
    Ok(())
}

async fn horizon<T: Subject>(f: &Fixture<T>) -> Result<Option<i64>, BoxError> {
    let mut txn = f.store.claim(&f.consumer, &[]).await?.txn;
    let horizon = f.store.purged_before(&mut txn, &f.consumer).await?;
    f.store.rollback(txn).await;
    let status = f.store.status(10).await?;
    let shown = status.consumers.iter().find(|c| c.consumer == "stock").and_then(|c| c.purged_before_ms);
    assert_eq!(shown, horizon, "the status shows the horizon");
    Ok(horizon)
}

/// A horizon that lies `ago` in the past, give or take a minute: the database has a clock of its own.
fn assert_near(horizon: Option<i64>, ago: Duration) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let expected = i64::try_from((now - ago).as_millis()).unwrap_or(i64::MAX);
    let near = horizon.is_some_and(|horizon| horizon.abs_diff(expected) < 60_000);
    assert!(near, "the horizon is {horizon:?}, expected about {expected}");
}
