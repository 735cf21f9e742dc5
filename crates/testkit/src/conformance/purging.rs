//! A purge pass over a large table: watched, stopped, resumed, taken over, and never made by two at once.

use std::sync::{Mutex, PoisonError, mpsc};

use oncebox_core::error::BoxError;
use oncebox_core::store::{PassEnd, PurgeProgress, Purged, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::fixture::{Fixture, claims};
use super::pass::{DAY, purge, purge_watched};
use super::subject::{Subject, Verdict};

/// So many that every store takes several steps.
const MANY: usize = 12_000;

async fn many_old_receipts<T: Subject>() -> Result<Fixture<T>, BoxError> {
    let f = Fixture::<T>::start().await?;
    let names: Vec<String> = (0..MANY).map(|n| format!("old-{n}")).collect();
    for names in names.chunks(4000) {
        let ids: Vec<&str> = names.iter().map(String::as_str).collect();
        let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &ids)?).await?;
        f.store.commit(claimed.txn, None).await?;
    }
    f.subject.age_receipts("stock", 2 * DAY).await?;
    Ok(f)
}

/// When a pass is stopped by whoever watches it. A step may find nothing to remove.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    NotWanted,
    FirstRemoval,
    End,
}

/// A pass, with all that it reports.
async fn watched<T: Subject>(f: &Fixture<T>, until: Until) -> Result<(Purged, Vec<PurgeProgress>), BoxError> {
    let (stop, seen) = (CancellationToken::new(), Mutex::new(Vec::new()));
    let progress = |report: PurgeProgress| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(report);
        if until == Until::FirstRemoval && report.removed > 0 {
            stop.cancel();
        }
    };
    if until == Until::NotWanted {
        stop.cancel();
    }
    let purged = purge_watched(&f.store, &f.consumer, &stop, &progress).await?;
    Ok((purged, seen.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// Every step is reported, and the reports add up.
pub async fn a_purge_reports_its_progress<T: Subject>() -> Verdict {
    let f = many_old_receipts::<T>().await?;
    let (purged, seen) = watched(&f, Until::End).await?;
    assert_eq!((purged.receipts, purged.end), (MANY as u64, PassEnd::Finished));
    assert!(seen.len() > 1, "{seen:?}");
    assert_eq!(seen.iter().map(|report| report.removed).sum::<u64>(), MANY as u64);
    assert!(seen.is_sorted_by_key(|report| report.done), "{seen:?}");
    assert!(seen.iter().all(|report| report.done <= report.total), "{seen:?}");
    Ok(())
}

/// A pass ends between two steps when it is told to, and the next one goes on from there instead of from the beginning.
pub async fn a_stopped_purge_resumes<T: Subject>() -> Verdict {
    let f = many_old_receipts::<T>().await?;
    let (first, before) = watched(&f, Until::FirstRemoval).await?;
    assert_eq!(first.end, PassEnd::Stopped);
    assert!(first.receipts > 0 && first.receipts < MANY as u64, "{first:?}");

    let (second, after) = watched(&f, Until::FirstRemoval).await?;
    assert_eq!(second.end, PassEnd::Stopped);
    assert!(after[0].done > before[before.len() - 1].done, "began anew: {before:?}, {after:?}");
    let (third, _) = watched(&f, Until::End).await?;
    assert_eq!(third.end, PassEnd::Finished);
    assert_eq!(first.receipts + second.receipts + third.receipts, MANY as u64);

    // What is finished is finished: the next pass looks at everything again.
    f.apply(&["a", "b"]).await?;
    f.subject.age_receipts("stock", 2 * DAY).await?;
    assert_eq!(purge(&f, DAY).await?.receipts, 2);
    Ok(())
}

/// Who is told to stop before the first step does nothing.
pub async fn a_purge_that_is_not_wanted_does_nothing<T: Subject>() -> Verdict {
    let f = many_old_receipts::<T>().await?;
    let (purged, seen) = watched(&f, Until::NotWanted).await?;
    assert_eq!(purged, Purged { end: PassEnd::Stopped, ..Purged::default() });
    assert_eq!(seen, []);
    assert_eq!(purge(&f, DAY).await?.receipts, MANY as u64);
    Ok(())
}

/// A pass of another process that has removed something and then waits until the sender is dropped.
struct Purger {
    reached: PurgeProgress,
    pass: JoinHandle<Result<Purged, BoxError>>,
    go_on: mpsc::Sender<()>,
}

impl Purger {
    async fn start<T: Subject>(f: &Fixture<T>) -> Result<Self, BoxError> {
        let (store, consumer) = (f.subject.connect().await?, f.consumer.clone());
        let (began, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let pass = tokio::spawn(async move {
            let progress = move |report: PurgeProgress| {
                if report.removed == 0 {
                    return;
                }
                began.send(report).ok();
                let wait = wait.lock().unwrap_or_else(PoisonError::into_inner);
                tokio::task::block_in_place(|| wait.recv()).ok();
            };
            purge_watched(&store, &consumer, &CancellationToken::new(), &progress).await
        });
        let reached = has_begun.recv().await.ok_or("the pass has removed nothing")?;
        Ok(Self { reached, pass, go_on })
    }

    async fn finish(self) -> Result<Purged, BoxError> {
        drop(self.go_on);
        self.pass.await?
    }

    /// As if its process were killed: it has not put anything in order.
    async fn die(self) {
        self.pass.abort();
        drop(self.go_on);
        let end = self.pass.await;
        assert!(end.is_err_and(|error| error.is_cancelled()), "the pass ended before it was killed");
    }
}

/// One process at a time makes a pass, for the whole of it; another is told so.
pub async fn a_second_purger_is_told_that_another_is_at_it<T: Subject>() -> Verdict {
    let f = many_old_receipts::<T>().await?;
    let first = Purger::start(&f).await?;
    for _ in 0..2 {
        assert_eq!(purge(&f, DAY).await?, Purged { end: PassEnd::Elsewhere, ..Purged::default() });
    }
    let first = first.finish().await?;
    assert_eq!((first.receipts, first.end), (MANY as u64, PassEnd::Finished));
    assert_eq!(purge(&f, DAY).await?.end, PassEnd::Finished, "whoever is done makes room at once");
    Ok(())
}

/// The pass of a process that died is taken over where it was left.
pub async fn a_purger_takes_over_from_one_that_is_gone<T: Subject>() -> Verdict {
    let f = many_old_receipts::<T>().await?;
    let first = Purger::start(&f).await?;
    let reached = first.reached;
    first.die().await;
    let left = f.subject.receipts("stock").await?.len();
    assert!(left > 0 && left < MANY, "{left} receipts are left");
    f.subject.expire_purger().await?;

    let (second, seen) = watched(&f, Until::End).await?;
    assert_eq!((second.receipts, second.end), (left as u64, PassEnd::Finished));
    assert!(seen[0].done > reached.done, "began anew: {reached:?}, {seen:?}");
    Ok(())
}

/// A purger that was away for so long that another took over stops when it comes back.
pub async fn a_purger_that_was_replaced_stops<T: Subject>() -> Verdict {
    let f = many_old_receipts::<T>().await?;
    let late = Purger::start(&f).await?;
    f.subject.expire_purger().await?;
    let next = Purger::start(&f).await?;
    let late = late.finish().await?;
    assert_eq!(late.end, PassEnd::Elsewhere);
    let next = next.finish().await?;
    assert_eq!(next.end, PassEnd::Finished);
    assert_eq!(late.receipts + next.receipts, MANY as u64);
    Ok(())
}
