//! Retention: a promise about how long duplicates are recognised.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::names::{ConsumerName, Tenant};
use oncebox_core::store::{Purge, Purged, Status, Store};

use super::fixture::{Fixture, apply, claims, letter};
use super::pass::{DAY, HOUR, count, ms_ago, purge};
use super::subject::{Subject, Verdict};

/// What is older than the horizon goes, the rest stays, and so do consumers that nobody named.
pub async fn purge_removes_what_is_older_than_the_horizon<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let billing = ConsumerName::new("billing")?;
    f.apply(&["old-1", "old-2"]).await?;
    apply::<T>(&f.store, &billing, &["old-1"], None).await?;
    f.subject.age_receipts("stock", DAY + HOUR).await?;
    f.subject.age_receipts("billing", 9 * DAY).await?;
    f.apply(&["young"]).await?;
    assert_eq!(purged_before(&f).await?, None, "nothing was purged yet");

    assert_eq!(purge(&f, DAY).await?.receipts, 2);
    assert_eq!(f.subject.receipts("stock").await?, ["young"]);
    assert_eq!(f.subject.receipts("billing").await?, ["old-1"]);
    assert_eq!(purge(&f, DAY).await?.receipts, 0);
    assert_near(purged_before(&f).await?, DAY);

    // A longer retention from now on does not bring back what is gone.
    purge(&f, 9 * DAY).await?;
    assert_near(purged_before(&f).await?, DAY);
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

    assert_eq!(purge(&f, DAY).await?.receipts, 2);
    assert_eq!(f.subject.receipts("stock").await?, ["a", "b"]);
    let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "acme", &["b"])?).await?;
    assert_eq!(claimed.fresh, [false], "the one of the tenant that has the letter");
    f.store.rollback(claimed.txn).await;
    Ok(())
}

/// A dry run counts what would go and changes nothing.
pub async fn purge_can_only_count<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.apply(&["a", "b"]).await?;
    f.subject.age_receipts("stock", 2 * DAY).await?;
    f.apply(&["c"]).await?;
    for _ in 0..2 {
        assert_eq!(count(&f, DAY).await?.receipts, 2);
    }
    assert_eq!(purged_before(&f).await?, None);
    assert_eq!(f.subject.receipts("stock").await?, ["a", "b", "c"]);
    assert_eq!(purge(&f, Duration::MAX).await?, Purged::default());
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
    assert_eq!(purge(&f, DAY).await?.receipts, 6000);
    assert!(f.subject.receipts("stock").await?.iter().all(|id| id.starts_with("young")));
    Ok(())
}

/// Up to when receipts were purged.
pub(super) async fn purged_before<T: Subject>(f: &Fixture<T>) -> Result<Option<i64>, BoxError> {
    let mut txn = f.store.claim(&f.consumer, &[]).await?.txn;
    let horizon = f.store.purged_before(&mut txn, &f.consumer).await?;
    f.store.rollback(txn).await;
    let status = f.store.status(10).await?;
    let shown = status.consumers.iter().find(|c| c.consumer == "stock").and_then(|c| c.purged_before_ms);
    assert_eq!(shown, horizon, "the status shows the horizon");
    Ok(horizon)
}

/// A horizon that lies `ago` in the past, give or take a minute: the database has a clock of its own.
pub(super) fn assert_near(horizon: Option<i64>, ago: Duration) {
    let expected = ms_ago(ago);
    let near = horizon.is_some_and(|horizon| horizon.abs_diff(expected) < 60_000);
    assert!(near, "the horizon is {horizon:?}, expected about {expected}");
}
