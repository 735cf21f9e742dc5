//! One transaction: claim → handler on the fresh messages → dead letters → position → commit.

use std::collections::HashSet;
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::Engine;
use crate::cause;
use crate::error::{BoxError, ErrorClass, StoreError, describe};
use crate::failpoint::failpoint;
use crate::handler::Apply;
use crate::message::Message;
use crate::names::Tenant;
use crate::policy::{OnFailure, StalePolicy};
use crate::receipt::ReceiptKey;
use crate::selector::Unfit;
use crate::store::{Advance, Claim, Claimed, DeadLetter, Store};
use crate::stream::Shared;
use crate::wake;

/// A record on its way through the loop: with an identity, or unfit to have one.
#[derive(Debug)]
pub(crate) enum Item {
    Fit(Message, ReceiptKey),
    Unfit(Box<Unfit>),
}

impl Item {
    pub(crate) fn offset(&self) -> i64 {
        match self {
            Self::Fit(message, _) => message.record().offset,
            Self::Unfit(unfit) => unfit.record.offset,
        }
    }
}

/// What a transaction does with its fresh messages.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Run the handler.
    Apply,
    /// Give the (single) message up.
    Park { error: String, attempts: u32 },
}

/// Why a transaction did not commit.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Try the same again; nobody is to blame.
    Transient(String),
    /// Another process owns the partition.
    Fenced,
    /// The message at that index is to blame, if it is known.
    Failed { at: Option<usize>, error: BoxError },
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        match error.class {
            ErrorClass::Transient => Self::Transient(describe(&error)),
            ErrorClass::Fenced => Self::Fenced,
            ErrorClass::Failed => Self::Failed { at: None, error: error.into() },
        }
    }
}

impl<S: Store, A: Apply<S>> Engine<S, A> {
    /// Runs a range of items as one transaction in a task of its own: whoever waits for it may go away, the transaction
    /// still ends as it should, and a panicking handler takes only its transaction with it.
    pub(crate) async fn transact(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        items: &Arc<Vec<Item>>,
        range: Range<usize>,
        task: Task,
        attempt: Option<i64>,
    ) -> Result<(), Trouble> {
        let (engine, shared, items) = (Arc::clone(self), Arc::clone(shared), Arc::clone(items));
        let start = range.start;
        let running =
            tokio::spawn(async move { engine.transaction(&shared, &items[range], &task, attempt).await });
        match running.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Trouble::Failed { at, error })) => {
                Err(Trouble::Failed { at: at.map(|at| start + at), error })
            }
            Ok(Err(trouble)) => Err(trouble),
            Err(ended) => Err(Trouble::Failed { at: None, error: panic_error(ended) }),
        }
    }

    async fn transaction(
        &self,
        shared: &Shared,
        items: &[Item],
        task: &Task,
        attempt: Option<i64>,
    ) -> Result<(), Trouble> {
        let began = Instant::now();
        let candidates = first_copies(items);
        let claims: Vec<Claim<'_>> = candidates
            .iter()
            .map(|(_, key, message)| Claim {
                key: *key,
                tenant: message.tenant().as_str(),
                message_id: message.id().as_str(),
            })
            .collect();
        let Claimed { mut txn, fresh } = self.store.claim(&self.consumer, &claims).await?;
        failpoint("after-claim");

        let mut fresh: Vec<(usize, Message)> = candidates
            .iter()
            .zip(fresh)
            .filter(|(_, fresh)| *fresh)
            .map(|((at, _, message), _)| (*at, (*message).clone()))
            .collect();
        let mut letters: Vec<DeadLetter> = items.iter().filter_map(unfit_letter).collect();
        let fit = items.len() - letters.len();
        let duplicates = (fit - fresh.len()) as u64;

        let prepared = self.set_aside(&mut txn, shared, task, &mut fresh, &mut letters).await;
        let (result, events) = match prepared {
            Ok(()) => cause::of_consumer(&self.consumer, self.run_handler(&mut txn, &fresh)).await,
            Err(trouble) => (Err(trouble), false),
        };
        let result = match result {
            Ok(()) if !letters.is_empty() => {
                // Replays go by the order in which they are written.
                letters.sort_by_key(|letter| letter.record.offset);
                self.store.park(&mut txn, &self.consumer, &letters).await.map_err(Trouble::from)
            }
            other => other,
        };
        if let Err(trouble) = result {
            self.store.rollback(txn).await;
            return Err(trouble);
        }
        failpoint("after-handler");

        let offsets: Vec<i64> = items.iter().map(Item::offset).collect();
        let next_offset = shared.next_if_done(&offsets);
        let advance = shared.owner.get().filter(|_| shared.positioned).map(|owner| Advance {
            owner,
            next_offset,
            applied: fresh.len() as u64,
            duplicates,
            settled_attempt: attempt,
        });
        self.store.commit(txn, advance).await?;
        failpoint("after-commit");
        if events {
            wake::events_committed();
        }
        shared.settle(&offsets, next_offset);

        self.meters.applied.increment(fresh.len() as u64);
        self.meters.duplicate.increment(duplicates);
        self.meters.dead.increment(letters.len() as u64);
        self.meters.committed(items.len(), began.elapsed());
        Ok(())
    }

    /// Moves the fresh messages that must not be applied now to the dead letters.
    async fn set_aside(
        &self,
        txn: &mut S::Txn,
        shared: &Shared,
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
        if self.settings.on_failure == OnFailure::ParkKey
            && let Some(owner) = shared.owner.get()
        {
            let keys: Vec<&[u8]> = fresh.iter().filter_map(|(_, m)| m.key()).collect();
            if !keys.is_empty() {
                let parked: HashSet<Vec<u8>> =
                    self.store.parked_keys(txn, &owner.key, &keys).await?.into_iter().collect();
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

    async fn run_handler(&self, txn: &mut S::Txn, fresh: &[(usize, Message)]) -> Result<(), Trouble> {
        if fresh.is_empty() {
            return Ok(());
        }
        failpoint("before-handler");
        let messages: Vec<Message> = fresh.iter().map(|(_, message)| message.clone()).collect();
        self.apply.apply(txn, &messages).await.map_err(|failure| {
            match S::classify(failure.error.as_ref() as &(dyn Error + 'static)) {
                ErrorClass::Transient => Trouble::Transient(describe(failure.error.as_ref())),
                ErrorClass::Fenced => Trouble::Fenced,
                ErrorClass::Failed => Trouble::Failed {
                    at: failure.at.and_then(|at| fresh.get(at)).map(|(item, _)| *item),
                    error: failure.error,
                },
            }
        })
    }
}

/// The first copy of each message in the batch; later copies are duplicates without asking the database.
fn first_copies(items: &[Item]) -> Vec<(usize, ReceiptKey, &Message)> {
    let mut seen = HashSet::with_capacity(items.len());
    items
        .iter()
        .enumerate()
        .filter_map(|(at, item)| match item {
            Item::Fit(message, key) => seen.insert(key).then_some((at, *key, message)),
            Item::Unfit(_) => None,
        })
        .collect()
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

fn unfit_letter(item: &Item) -> Option<DeadLetter> {
    match item {
        Item::Fit(..) => None,
        Item::Unfit(unfit) => Some(DeadLetter {
            tenant: Tenant::none(),
            message_id: None,
            record: unfit.record.clone(),
            error: unfit.reason.clone(),
            attempts: 0,
        }),
    }
}

fn panic_error(ended: tokio::task::JoinError) -> BoxError {
    if !ended.is_panic() {
        return ended.into();
    }
    let panic = ended.into_panic();
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    format!("the handler panicked: {text}").into()
}
