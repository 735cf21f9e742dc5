//! Now and then each consumer says what it has done, and how far it is behind.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::live::Live;
use oncebox_core::monitor::{ConsumerLag, Monitor, Tallied};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// How soon a change of the interval is noticed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Says it every so often until `stop`; never while the interval is zero.
pub(super) async fn summarize(monitor: Monitor, every: Live<Duration>, stop: CancellationToken) {
    let mut before = monitor.tallies();
    let mut last = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        let every = every.get();
        if !every.is_zero() && last.elapsed() >= every {
            last = Instant::now();
            before = say(&monitor, &before, every);
        }
    }
}

/// One line for each consumer, also if nothing happened: then that is what it says. Returns the counts of now.
fn say(monitor: &Monitor, before: &BTreeMap<String, Tallied>, every: Duration) -> BTreeMap<String, Tallied> {
    let (now, lags) = (monitor.tallies(), monitor.lags());
    for (consumer, now) in &now {
        let done = now.since(before.get(consumer).copied().unwrap_or_default());
        let lag = ConsumerLag::of(lags.iter().filter(|lag| lag.consumer == *consumer));
        info!(
            consumer,
            applied = done.applied,
            duplicates = done.duplicates.total(),
            dead = done.dead,
            lag = lag.messages,
            lag_seconds = lag.age.as_secs(),
            partitions = lag.partitions,
            "in the last {}",
            humantime::format_duration(every)
        );
    }
    now
}
