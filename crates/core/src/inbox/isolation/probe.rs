//! Is it this message, or is it everything? Others are tried without being applied.

use std::collections::HashSet;
use std::sync::Arc;

use crate::inbox::Engine;
use crate::inbox::batch::Batch;
use crate::inbox::guard::Guarded;
use crate::inbox::item::Item;
use crate::inbox::partition::Partition;
use crate::inbox::receipt::ReceiptKey;
use crate::inbox::transaction::{Task, Trouble};
use crate::message::Message;
use crate::store::InboxStore;

/// How many other messages are tried.
const MAX_PROBED_MESSAGES: usize = 4;
/// How many are looked at to find some of other tenants and keys.
const MAX_MESSAGES_LOOKED_AT: usize = 200;

/// How the handler does on other messages.
#[derive(Debug)]
pub(in crate::inbox) enum Others {
    /// At least one succeeds: it is this message.
    Succeed,
    /// All that were tried fail as well: it is something else.
    Fail,
    /// There is none to try.
    Unknown,
    /// It has committed one of them by itself, although that was not to be applied: the partition stops, for this reason.
    Torn(String),
}

impl<S: InboxStore> Engine<S> {
    /// Tries a few messages behind this one. What the handler does with them is rolled back.
    pub(in crate::inbox) async fn how_others_do(self: &Arc<Self>, batch: Batch<'_>, failed: usize) -> Others {
        let mut answer = Others::Unknown;
        for other in self.others(batch.partition, batch.items, failed, batch.lane) {
            // It may be the one that ends the process: where those around it run under the guard, and in a queue also if it
            // was delivered before.
            let guarded = match batch.guarded {
                Some(guarded) => Some(guarded.another()),
                None => {
                    let suspect = batch.partition.deliveries.is_some() && other.record().redelivered;
                    suspect.then(|| Guarded::in_queue(&batch.partition.key))
                }
            };
            let other = Arc::new(vec![other]);
            let tried = match &guarded {
                Some(guarded) => {
                    self.transact_alone(batch.partition, &other, 0..1, Task::Probe, guarded).await
                }
                None => self.transact(batch.partition, &other, 0..1, Task::Probe, None).await,
            };
            match tried {
                Ok(()) => return Others::Succeed,
                Err(Trouble::NothingToTry) => {}
                Err(Trouble::Torn(reason)) => return Others::Torn(reason),
                Err(_) => answer = Others::Fail,
            }
        }
        answer
    }

    /// A few messages behind the failed one, of other tenants if there are some, each of another key: what fails may have to
    /// do with those.
    fn others(&self, partition: &Partition, items: &[Item], failed: usize, lane: usize) -> Vec<Item> {
        let Item::Fit(failed_message, failed_key) = &items[failed] else { return Vec::new() };
        let mut waiting = partition.queues.peek(lane, MAX_MESSAGES_LOOKED_AT);
        waiting.retain(|record| self.settings.wants(record));
        let waiting = self.identify(waiting);
        let mut known = HashSet::from([(failed_message.tenant(), failed_message.key())]);
        let mut others: Vec<(&Message, ReceiptKey)> = items[failed + 1..]
            .iter()
            .take(MAX_MESSAGES_LOOKED_AT)
            .chain(&waiting)
            .filter_map(|item| match item {
                Item::Fit(message, key) => Some((message, *key)),
                Item::Unfit(_) => None,
            })
            // A copy of it says nothing.
            .filter(|(_, key)| key != failed_key)
            .filter(|(other, _)| other.key().is_none() || known.insert((other.tenant(), other.key())))
            .collect();
        others.sort_by_key(|(other, _)| other.tenant() == failed_message.tenant());
        others
            .into_iter()
            .take(MAX_PROBED_MESSAGES)
            .map(|(other, key)| Item::Fit(other.clone(), key))
            .collect()
    }
}
