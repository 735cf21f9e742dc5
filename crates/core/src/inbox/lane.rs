//! A lane: one batch in flight, what arrives meanwhile is the next one.

use std::sync::Arc;

use super::Engine;
use super::batch::{Batch, End};
use super::guard::{CrashGuard, Guarded};
use super::item::Item;
use super::memory::InFlight;
use super::partition::Partition;
use super::policy::BatchBounds;
use super::queue::Taken;
use super::receipt::ReceiptKey;
use crate::message::Record;
use crate::store::InboxStore;

impl<S: InboxStore> Engine<S> {
    /// Runs a lane until its stream closes or stops. Returns why it stands still, if it does.
    pub(crate) async fn run_lane(
        self: Arc<Self>,
        partition: Arc<Partition>,
        lane: usize,
        guard: Arc<CrashGuard>,
    ) -> Option<String> {
        let health = self.monitor.register(
            format!("inbox:{}", self.consumer),
            format!("{}/{}#{lane}", partition.key.topic, partition.key.partition),
        );
        let mut prepared: Option<(Arc<Vec<Item>>, InFlight)> = None;
        loop {
            if prepared.is_none() && partition.queues.is_empty(lane) {
                self.write_progress(&partition).await;
                health.idle();
            }
            let guarded = guard.is_up();
            let bounds = if guarded {
                BatchBounds { messages: 1, ..self.settings.batch }
            } else {
                self.settings.batch
            };
            let (items, _in_flight) = match prepared.take() {
                Some(_) if partition.queues.has_ended() => return None,
                Some(prepared) => prepared,
                None => self.prepare(&partition, partition.queues.next(lane, bounds).await?),
            };
            if items.is_empty() {
                // None was wanted, so there is no commit that would move the position.
                partition.want_note();
                // There may be many such batches, and no other place to wait at.
                tokio::task::yield_now().await;
                continue;
            }
            health.busy();
            let batch = Batch { partition: &partition, lane, items: &items, guarded: None, health: &health };
            let end = if guarded && let Some(owner) = partition.owner.get() {
                let end = self.finish(Batch { guarded: Some(&Guarded::at_position(owner)), ..batch }).await;
                // What was settled before and is only read again was not in flight when the process ended.
                let first_open = owner.next_offset.unwrap_or(i64::MIN);
                if items.iter().all(|item| item.offset() >= first_open) {
                    guard.one_done();
                }
                end
            } else {
                // While the database works, the next batch is made ready; but only a full one, or it could still grow.
                let finishing = self.finish(batch);
                let (end, next) = tokio::join!(finishing, async {
                    partition.queues.take_full(lane, bounds).map(|taken| self.prepare(&partition, taken))
                });
                prepared = next;
                end
            };
            match end {
                End::Finished => {}
                End::Closing => return None,
                End::Stopped(reason) => return Some(reason),
            }
        }
    }

    fn prepare(&self, partition: &Partition, taken: Taken) -> (Arc<Vec<Item>>, InFlight) {
        (Arc::new(self.take_in(partition, taken.records, &taken.arrivals)), taken.in_flight)
    }

    /// Gives each record its identity and the key of its receipt.
    pub(super) fn identify(&self, records: Vec<Record>) -> Vec<Item> {
        let identify = |record| match self.settings.identity.identify(record) {
            Ok(message) => {
                let key = ReceiptKey::of(&self.consumer, message.tenant(), message.id());
                Item::Fit(message, key)
            }
            Err(unfit) => Item::Unfit(unfit),
        };
        records.into_iter().map(identify).collect()
    }
}
