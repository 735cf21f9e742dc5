//! Looks at the database now and then: is it there, and the numbers that only it knows.

use std::collections::BTreeSet;
use std::time::Duration;

use metrics::gauge;
use oncebox_core::{Admin, Monitor, describe};
use tokio_util::sync::CancellationToken;

/// How often.
const EVERY: Duration = Duration::from_secs(5);
/// Counts stop here: a metric must not cost a scan of a large table.
const COUNT_CAP: u64 = 10_000;

pub(crate) async fn watch<S: Admin>(store: S, monitor: Monitor, stop: CancellationToken) {
    let health = monitor.register("store", "");
    // A consumer whose last dead letter is gone must show zero, not its last number.
    let mut shown: BTreeSet<String> = BTreeSet::new();
    loop {
        let looked = async {
            store.ping().await?;
            store.status(COUNT_CAP).await
        };
        match looked.await {
            Ok(status) => {
                health.succeeded();
                for consumer in shown.iter().filter(|c| !status.consumers.iter().any(|s| s.consumer == **c)) {
                    gauge!("oncebox_dead_letters", "consumer" => consumer.clone()).set(0.0);
                }
                for consumer in &status.consumers {
                    gauge!("oncebox_dead_letters", "consumer" => consumer.consumer.clone())
                        .set(consumer.dead_letters as f64);
                    shown.insert(consumer.consumer.clone());
                }
                gauge!("oncebox_outbox_pending").set(status.outbox_pending as f64);
                gauge!("oncebox_outbox_oldest_seconds")
                    .set(status.outbox_oldest.unwrap_or_default().as_secs_f64());
            }
            Err(e) => health.failed(describe(&e)),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}
