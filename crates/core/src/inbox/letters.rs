//! Which messages become dead letters without the handler seeing them, and how a dead letter is made.

use std::collections::HashSet;

use bytes::Bytes;
use tracing::warn;

use super::Engine;
use super::item::Item;
use super::partition::Partition;
use super::policy::{OnFailure, StalePolicy};
use super::transaction::{Task, Trouble};
use crate::line_limit::LineLimit;
use crate::message::Message;
use crate::names::Tenant;
use crate::store::{DeadLetter, InboxStore};

impl<S: InboxStore> Engine<S> {
    /// Moves the fresh messages that must not be applied now to the dead letters.
    pub(super) async fn set_aside(
        &self,
        txn: &mut S::Txn,
        partition: &Partition,
        task: &Task,
        fresh: &mut Vec<(usize, Message)>,
        letters: &mut Vec<DeadLetter>,
    ) -> Result<(), Trouble> {
        if let Task::Park { error, attempts } = task {
            letters.extend(fresh.drain(..).map(|(_, message)| letter(&message, error.clone(), *attempts)));
            return Ok(());
        }
        if self.settings.stale == StalePolicy::Park
            && let Some(horizon) = self.store.purged_before(txn, &self.consumer).await?
        {
            divert(
                fresh,
                letters,
                |m| m.record().timestamp_ms.is_some_and(|t| t < horizon),
                || {
                    "older than the receipts that are still kept, so it may be a duplicate (stale = \"park\")"
                        .to_owned()
                },
            );
        }
        if self.settings.on_failure == OnFailure::ParkKey {
            let keys: Vec<&[u8]> = fresh.iter().filter_map(|(_, m)| m.key()).collect();
            if !keys.is_empty() {
                let parked: HashSet<Vec<u8>> =
                    self.store.parked_keys(txn, &partition.key, &keys).await?.into_iter().collect();
                // Behind a letter of this very batch, too.
                let here: Vec<(Bytes, i64)> = letters
                    .iter()
                    .filter_map(|letter| Some((letter.record.key.clone()?, letter.record.offset)))
                    .collect();
                let behind =
                    |key: &[u8], at| here.iter().any(|(parked, offset)| *parked == key && *offset < at);
                divert(
                    fresh,
                    letters,
                    |m| m.key().is_some_and(|key| parked.contains(key) || behind(key, m.record().offset)),
                    || {
                        "parked behind an earlier dead letter of the same key; replay that one first"
                            .to_owned()
                    },
                );
            }
        }
        Ok(())
    }
}

/// Says which messages became dead letters without anybody having tried them: a producer that leaves out the id would
/// otherwise be noticed only by who looks for its effects. Many of them at once are counted.
pub(super) fn log_unseen(partition: &Partition, letters: &[DeadLetter], lines: &LineLimit) {
    for letter in letters {
        let Some(left_out) = lines.admit() else { continue };
        warn!(
            position = %partition.key, place = letter.record.coordinates(), id = letter.message_id, reason = letter.error,
            left_out, "kept as a dead letter without being applied: see `oncebox dead list`"
        );
    }
}

fn divert(
    fresh: &mut Vec<(usize, Message)>,
    letters: &mut Vec<DeadLetter>,
    chosen: impl Fn(&Message) -> bool,
    why: impl Fn() -> String,
) {
    fresh.retain(|(_, message)| {
        let goes = chosen(message);
        if goes {
            letters.push(letter(message, why(), 0));
        }
        !goes
    });
}

fn letter(message: &Message, error: String, attempts: u32) -> DeadLetter {
    DeadLetter {
        tenant: message.tenant().clone(),
        message_id: Some(message.id().as_str().to_owned()),
        record: message.record().clone(),
        error,
        attempts,
    }
}

/// It has no receipt, since nobody knows all of what that would say. The id, if it is known, stands in the text: a letter with an
/// id of its own is one whose receipt is written.
pub(super) fn unfit_letter(item: &Item) -> Option<DeadLetter> {
    let Item::Unfit(unfit) = item else { return None };
    let error = match &unfit.id {
        Some(id) => format!("message {id}: {}", unfit.reason),
        None => unfit.reason.clone(),
    };
    Some(DeadLetter {
        tenant: unfit.tenant.clone().unwrap_or_else(Tenant::none),
        message_id: None,
        record: unfit.record.clone(),
        error,
        attempts: 0,
    })
}

/// It has no receipt of its own, so nobody could tell its copies.
pub(super) fn collision_letter(item: &Item) -> Option<DeadLetter> {
    let Item::Fit(message, _) = item else { return None };
    let error = "its receipt has the key of another message's receipt, which nobody meets by accident: the id was made up to \
                 collide. It was not applied";
    Some(DeadLetter { message_id: None, ..letter(message, format!("message {}: {error}", message.id()), 0) })
}

/// Its receipt is committed already, by the handler.
pub(super) fn torn_letter(message: &Message, why: &str) -> DeadLetter {
    let error = format!(
        "{why}. Its receipt is committed, and whether its effect is nobody knows: compare it with your tables, then replay it \
         if the effect is missing, or drop it"
    );
    letter(message, error, 1)
}

/// The table of receipts cannot hold it, so it has none either.
pub(super) fn refused_letter(message: &Message, why: &str, attempts: u32) -> DeadLetter {
    DeadLetter { message_id: None, ..letter(message, format!("message {}: {why}", message.id()), attempts) }
}
