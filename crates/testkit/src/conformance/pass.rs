//! Purge passes, as the properties of retention make them.

use std::time::Duration;

use oncebox_core::clock::Clock;
use oncebox_core::error::BoxError;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Admin, Purge, PurgePass, PurgeProgress, Purged, Retention};
use tokio_util::sync::CancellationToken;

use super::fixture::Fixture;
use super::subject::Subject;

pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The time of day, in milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    Clock::system().now_ms()
}

/// The time that long ago.
pub(super) fn ms_ago(by: Duration) -> i64 {
    now_ms() - i64::try_from(by.as_millis()).unwrap_or(i64::MAX)
}

/// One pass over everything.
pub(super) async fn purge<T: Subject>(f: &Fixture<T>, keep: Duration) -> Result<Purged, BoxError> {
    purge_at(f, keep, now_ms()).await
}

/// One pass by a process whose clock shows this.
pub(super) async fn purge_at<T: Subject>(
    f: &Fixture<T>,
    keep: Duration,
    now_ms: i64,
) -> Result<Purged, BoxError> {
    let (retention, stop) = (retention(&f.consumer, keep), CancellationToken::new());
    let pass = PurgePass { retention: &retention, now_ms, dry_run: false, stop: &stop, progress: &|_| {} };
    Ok(f.store.purge(pass).await?)
}

/// A dry run.
pub(super) async fn count<T: Subject>(f: &Fixture<T>, keep: Duration) -> Result<Purged, BoxError> {
    let (retention, stop) = (retention(&f.consumer, keep), CancellationToken::new());
    let (now_ms, progress) = (now_ms(), |_| {});
    let pass = PurgePass { retention: &retention, now_ms, dry_run: true, stop: &stop, progress: &progress };
    Ok(f.store.purge(pass).await?)
}

/// A pass that is watched, and may be stopped by whoever watches it.
pub(super) async fn purge_watched<S: Admin>(
    store: &S,
    consumer: &ConsumerName,
    stop: &CancellationToken,
    progress: &(dyn Fn(PurgeProgress) + Send + Sync),
) -> Result<Purged, BoxError> {
    let retention = retention(consumer, DAY);
    let pass = PurgePass { retention: &retention, now_ms: now_ms(), dry_run: false, stop, progress };
    Ok(store.purge(pass).await?)
}

fn retention(consumer: &ConsumerName, keep: Duration) -> [Retention; 1] {
    [Retention { consumer: consumer.clone(), keep }]
}
