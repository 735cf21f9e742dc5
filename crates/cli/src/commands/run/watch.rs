//! Looks at the database now and then: is it there, and the numbers that only it knows.

mod outbox;

use std::collections::BTreeSet;
use std::time::Duration;

use oncebox_core::error::describe;
use oncebox_core::metrics::{self, COUNT_CAP};
use oncebox_core::monitor::Monitor;
use oncebox_core::store::{Admin, StoreStatus};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub(crate) use outbox::OutboxAlarms;

/// How often it looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) async fn watch<S: Admin>(
    store: S,
    mut outbox: OutboxAlarms,
    monitor: Monitor,
    stop: CancellationToken,
) {
    let health = monitor.register_with("store", "", "the database is back");
    // A consumer whose last dead letter is gone must show zero, not its last number.
    let mut shown: BTreeSet<String> = BTreeSet::new();
    loop {
        let look = async {
            store.ping().await?;
            store.status(COUNT_CAP).await
        };
        match outbox.show_during(look).await {
            Ok(status) => {
                health.succeeded();
                show_dead_letters(&status, &mut shown);
                metrics::outbox_pending().set(status.outbox.pending as f64);
                metrics::outbox_delayed().set(status.outbox.delayed as f64);
                metrics::outbox_held().set(status.outbox.held as f64);
                metrics::outbox_parked().set(status.outbox.parked as f64);
                outbox.note(&status.outbox);
            }
            Err(e) => {
                let reason = describe(&e);
                if health.failed(&reason) {
                    warn!(reason, "the database cannot be used; trying again");
                }
            }
        }
        tokio::select! {
            () = outbox.show_during(tokio::time::sleep(LOOK_INTERVAL)) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn show_dead_letters(status: &StoreStatus, shown: &mut BTreeSet<String>) {
    for consumer in shown.iter().filter(|c| !status.consumers.iter().any(|s| s.consumer == **c)) {
        metrics::dead_letters(consumer.clone()).set(0.0);
    }
    for consumer in &status.consumers {
        metrics::dead_letters(consumer.consumer.clone()).set(consumer.dead_letters as f64);
        shown.insert(consumer.consumer.clone());
    }
}
