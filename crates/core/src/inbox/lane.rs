//! A lane: one batch in flight, what arrives meanwhile is the next one.

use std::sync::Arc;

use super::Engine;
use super::batch::{End, Settling};
use super::guard::{CrashGuard, Guarded};
use super::handler::Apply;
use super::policy::BatchBounds;
use super::receipt::ReceiptKey;
use super::stream::Shared;
use super::transaction::Item;
use crate::message::Record;
use crate::store::InboxStore;

impl<S: InboxStore, A: Apply<S>> Engine<S, A> {
    /// Runs a lane until its stream closes or stops. Returns why it stands still, if it does.
    pub(crate) async fn run_lane(
        self: Arc<Self>,
        shared: Arc<Shared>,
        lane: usize,
        guard: Arc<CrashGuard>,
    ) -> Option<String> {
        let health = self.monitor.register(
            format!("inbox:{}", self.consumer),
            format!("{}/{}#{lane}", shared.key.topic, shared.key.partition),
        );
        let mut prepared: Option<Arc<Vec<Item>>> = None;
        loop {
            if prepared.is_none() && shared.is_idle(lane) {
                self.write_progress(&shared).await;
                health.idle();
            }
            let guarded = guard.is_up();
            let bounds = if guarded {
                BatchBounds { messages: 1, ..self.settings.batch }
            } else {
                self.settings.batch
            };
            let items = match prepared.take() {
                Some(_) if shared.is_ending() => return None,
                Some(items) => items,
                None => Arc::new(self.identify(shared.next_batch(lane, bounds).await?)),
            };
            health.busy();
            let batch = Settling { shared: &shared, lane, items: &items, guarded: None, health: &health };
            let end = if guarded && let Some(owner) = shared.owner.get() {
                let end = self.settle(Settling { guarded: Some(&Guarded::new(owner)), ..batch }).await;
                // What was settled before and is only read again was not in flight when the process ended.
                let first_open = owner.next_offset.unwrap_or(i64::MIN);
                if items.iter().all(|item| item.offset() >= first_open) {
                    guard.one_done();
                }
                end
            } else {
                // While the database works, the next batch is made ready; but only a full one, or it could still grow.
                let settling = self.settle(batch);
                let (end, next) = tokio::join!(settling, async {
                    shared.full_batch(lane, bounds).map(|records| Arc::new(self.identify(records)))
                });
                prepared = next;
                end
            };
            match end {
                End::Settled => {}
                End::Closing => return None,
                End::Stopped(reason) => return Some(reason),
            }
        }
    }

    pub(super) fn identify(&self, records: Vec<Record>) -> Vec<Item> {
        records
            .into_iter()
            .map(|record| match self.settings.identity.identify(record) {
                Ok(message) => {
                    let key = ReceiptKey::of(&self.consumer, message.tenant(), message.id());
                    Item::Fit(message, key)
                }
                Err(unfit) => Item::Unfit(unfit),
            })
            .collect()
    }
}
