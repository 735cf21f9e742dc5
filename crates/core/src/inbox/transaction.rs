//! One transaction: claim → handler on the fresh messages → dead letters → position → commit.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use tracing::warn;

use super::Engine;
use super::call;
use super::fingerprint::{Fingerprints, first_payloads};
use super::item::Item;
use super::letters::{collision_letter, log_unseen, refused_letter, unfit_letter};
use super::partition::Partition;
use super::receipt::ReceiptKey;
use super::trace::{Step, Trace};
use crate::error::{BoxError, WithValues, Wording, describe, describe_in_log, reject, with_values};
use crate::failpoint::failpoint;
use crate::message::Message;
use crate::mistake::mistaken;
use crate::outbox::wake;
use crate::source::{Answer, Answered};
use crate::store::{Advance, Claim, Claimed, DeadLetter, Duplicates, InboxStore, Refused};
use crate::store::{ErrorClass, StoreError, further_values};

/// What a transaction does with its fresh messages.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Run the handler.
    Apply,
    /// Give the (single) message up.
    Park { error: String, attempts: u32 },
    /// Run the handler, and undo what it did.
    Probe,
}

/// Why a transaction did not commit.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The database is not there.
    Away(String),
    /// Something was in the way. Counts, if it was while the handler ran or committed, against a message that ran alone:
    /// it may itself be what is in the way.
    Transient { error: BoxError, counts: bool },
    /// A statement or the database is wrong; seen at the message at that index, if it is known.
    Environment { at: Option<usize>, error: BoxError },
    /// Another process owns the partition.
    Fenced,
    /// The message at that index is to blame, if it is known.
    Failed { at: Option<usize>, error: BoxError },
    /// The (single) message has ended the process too often, and no message may be given up.
    KeepsCrashing(String),
    /// The partition has to be taken over anew, by whoever comes next, although it is still ours.
    BeginAnew(String),
    /// The handler has committed by itself.
    Torn(String),
    /// A probe found only a copy, or the stream closes.
    NothingToTry,
}

impl Trouble {
    fn new(class: ErrorClass, at: Option<usize>, error: BoxError) -> Self {
        match class {
            ErrorClass::Away => Self::Away(describe_in_log(error.as_ref())),
            ErrorClass::Transient => Self::Transient { error, counts: false },
            ErrorClass::Environment => Self::Environment { at, error },
            ErrorClass::Fenced => Self::Fenced,
            ErrorClass::Torn => Self::Torn(describe(error.as_ref())),
            ErrorClass::Failed => Self::Failed { at, error },
        }
    }

    /// It happened while the handler ran, or at the commit of what it did.
    fn of_the_handler(mut self) -> Self {
        if let Self::Transient { counts, .. } = &mut self {
            *counts = true;
        }
        self
    }

    /// The index counts from the beginning of the batch, not of the part.
    fn in_part_from(mut self, start: usize) -> Self {
        if let Self::Environment { at: Some(at), .. } | Self::Failed { at: Some(at), .. } = &mut self {
            *at += start;
        }
        self
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::new(error.class, None, error.into())
    }
}

impl<S: InboxStore> Engine<S> {
    /// Runs a range of items as one transaction in a task of its own: whoever waits for it may go away, the transaction
    /// still ends as it should, and a panicking handler takes only its transaction with it.
    pub(crate) async fn transact(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        items: &Arc<Vec<Item>>,
        range: Range<usize>,
        task: Task,
        attempt: Option<i64>,
    ) -> Result<(), Trouble> {
        let (engine, partition, items) = (Arc::clone(self), Arc::clone(partition), Arc::clone(items));
        let start = range.start;
        // Who runs with an attempt written down has the turn alone already.
        let beside = match attempt {
            None => Some(tokio::select! {
                biased;
                turn = self.settings.turn.beside_others() => turn,
                // A suspect may take its time; a stream that closes does not wait for it.
                () = partition.closing.cancelled() => return Err(Trouble::NothingToTry),
            }),
            Some(_) => None,
        };
        let connection = tokio::select! {
            biased;
            connection = self.connections.take() => connection,
            // Nor for the other transactions of its consumer.
            () = partition.closing.cancelled() => return Err(Trouble::NothingToTry),
        };
        let running = tokio::spawn(async move {
            let (_beside, _connection) = (beside, connection);
            let passage = engine.gate.enter().await;
            let mut trace = engine.trace(&items[range.clone()], &task);
            let result =
                engine.transaction(&partition, &items[range.clone()], &task, attempt, &mut trace).await;
            engine.trace_ended(&partition, &items[range], trace, &result);
            if let Err(Trouble::Transient { counts: true, .. }) = &result {
                engine.gate.collided(&passage);
            }
            result
        });
        match running.await {
            Ok(result) => result.map_err(|trouble| trouble.in_part_from(start)),
            Err(ended) => {
                let error = match ended.try_into_panic() {
                    Ok(panic) => panic_error(panic.as_ref()),
                    Err(ended) => ended.into(),
                };
                Err(Trouble::Failed { at: None, error })
            }
        }
    }

    async fn transaction(
        &self,
        partition: &Partition,
        items: &[Item],
        task: &Task,
        attempt: Option<i64>,
        trace: &mut Trace,
    ) -> Result<(), Trouble> {
        trace.begin(Step::Claim);
        let began = Instant::now();
        let (candidates, mut collisions) = first_copies(items);
        let columns = self.further_columns(&candidates);
        let compares = partition.compares_payloads && self.store.adopted().is_none();
        let payloads = if compares { Fingerprints::of(items) } else { Fingerprints::default() };
        let claims: Vec<Claim<'_>> = candidates
            .iter()
            .enumerate()
            .map(|(nth, (at, key, message))| Claim {
                key: *key,
                tenant: message.tenant().as_str(),
                message_id: message.id().as_str(),
                set: columns.get(nth).map_or(&[], Vec::as_slice),
                fingerprint: payloads.at(*at),
            })
            .collect();
        let claimed = match (self.store.claim(&self.consumer, &claims).await, task) {
            // What has no receipt because its values do not fit the table is still kept, without one.
            (Err(e), Task::Park { error, .. }) if e.class == ErrorClass::Failed => {
                let Claimed { txn, .. } = Box::pin(self.store.claim(&self.consumer, &[])).await?;
                let refuse = |at| Refused { at, why: error.clone() };
                let refused = (0..claims.len()).map(refuse).collect();
                let fresh = vec![false; claims.len()];
                Claimed { txn, fresh, collisions: Vec::new(), refused, fingerprints: Vec::new() }
            }
            (claimed, _) => claimed?,
        };
        let Claimed { mut txn, fresh: written, .. } = claimed;
        collisions.extend(claimed.collisions.into_iter().map(|at| candidates[at].0));
        trace.end_step(None);
        failpoint("after-claim");

        let with_receipt =
            || candidates.iter().zip(&written).filter(|(_, fresh)| **fresh).map(|(candidate, _)| candidate);
        let mut fresh: Vec<(usize, Message)> =
            with_receipt().map(|(at, _, message)| (*at, (*message).clone())).collect();
        // Of those the receipt is committed if the handler commits.
        let torn = async |error: StoreError| {
            let messages: Vec<&Message> = with_receipt().map(|(_, _, message)| *message).collect();
            self.torn(partition, &messages, &error).await
        };
        let mut letters: Vec<DeadLetter> = items.iter().filter_map(unfit_letter).collect();
        letters.extend(collisions.iter().filter_map(|at| collision_letter(&items[*at])));
        let attempts = if let Task::Park { attempts, .. } = task { *attempts } else { 0 };
        let refused = claimed.refused.iter();
        letters.extend(refused.map(|one| refused_letter(candidates[one.at].2, &one.why, attempts)));
        // Who gives messages back keeps none.
        if let Some(letter) = letters.first().filter(|_| self.gives_back(partition)) {
            let error = reject(letter.error.clone());
            let at = items.iter().position(|item| item.offset() == letter.record.offset);
            self.store.rollback(txn).await;
            return Err(Trouble::Failed { at, error });
        }
        let duplicates = (items.len() - letters.len() - fresh.len()) as u64;
        // A table that takes nothing of a topic is not what the mapping says.
        let nothing_fits = fresh.is_empty() && duplicates == 0 && !matches!(task, Task::Park { .. });
        if let Some(first) = claimed.refused.first().filter(|_| nothing_fits)
            && self.streak.would_be_longer_than(self.settings.streak_limit, claimed.refused.len())
        {
            self.store.rollback(txn).await;
            let error = format!("{} (so it is with the messages around it, and none was applied)", first.why);
            return Err(Trouble::Environment { at: Some(candidates[first.at].0), error: error.into() });
        }

        let prepared = self.set_aside(&mut txn, partition, task, &mut fresh, &mut letters).await;
        let (result, events) = match prepared {
            Ok(()) => self.run_handler(&mut txn, &fresh, trace).await,
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
            return Err(match self.store.undo(txn).await {
                Ok(()) => trouble,
                Err(e) => torn(e).await,
            });
        }
        if matches!(task, Task::Probe) {
            if let Err(e) = self.store.undo(txn).await {
                return Err(torn(e).await);
            }
            return if fresh.is_empty() { Err(Trouble::NothingToTry) } else { Ok(()) };
        }
        failpoint("after-handler");

        let firsts = first_payloads(&claims, &written, &claimed.fingerprints);
        let answers = answers(partition, items, &fresh, &letters, &payloads.differing(items, &firsts));
        // A queue has no owner, and no position to move.
        let foreseen = partition
            .owner
            .get()
            .map(|owner| (owner, partition.progress.foresee(owner, items.iter().map(Item::record))));
        let advance = foreseen.as_ref().map(|(owner, foreseen)| Advance {
            owner,
            progress: foreseen.progress,
            applied: fresh.len() as u64,
            duplicates: by_cause(&answers),
            finished_attempt: attempt,
        });
        if mistaken("AckBeforeCommit") {
            foreseen.iter().for_each(|(_, foreseen)| partition.progress.settle(foreseen));
        }
        if mistaken("AnswerBeforeCommit") {
            partition.answer(&answers);
        }
        trace.begin(Step::Commit);
        match self.store.commit(txn, advance).await {
            Ok(()) => {}
            Err(e) if e.class == ErrorClass::Torn => return Err(torn(e).await),
            Err(e) => return Err(self.not_committed(partition, items, e)),
        }
        trace.end_step(None);
        trace.answered(&answers);
        failpoint("after-commit");
        partition.unsure.over(items.iter().map(Item::offset));
        if !matches!(task, Task::Park { .. }) {
            log_unseen(partition, &letters, &self.unseen);
        }
        if !fresh.is_empty() {
            self.streak.one_applied();
        } else if nothing_fits {
            claimed.refused.iter().for_each(|_| self.streak.one_given_up());
        }
        if events {
            wake::events_committed();
        }
        if let Some((_, foreseen)) = &foreseen {
            partition.progress.settle(foreseen);
            if let Some(next) = partition.progress.settled() {
                partition.lag.settled_below(next);
            }
        }
        if !mistaken("AnswerBeforeCommit") {
            partition.answer(&answers);
        }

        warn_of_differing(partition, items, &answers);
        self.meters.redelivered(items, &answers);
        self.meters.applied(fresh.len() as u64);
        self.meters.skipped(&answers);
        self.meters.dead(letters.len() as u64);
        self.meters.committed(items.len(), began.elapsed());
        Ok(())
    }

    /// A commit that failed, or whose answer got lost. One lane runs its batch again and finds out. Of several lanes nobody
    /// could tell any more how many commits the database must know, so the partition begins anew.
    fn not_committed(&self, partition: &Partition, items: &[Item], error: StoreError) -> Trouble {
        let unknown = error.class == ErrorClass::Away;
        if unknown {
            partition.unsure.about(items.iter().map(Item::offset));
        }
        if unknown && partition.queues.lanes() > 1 && partition.owner.get().is_some() {
            return Trouble::BeginAnew(describe(&error));
        }
        Trouble::from(error).of_the_handler()
    }

    /// What the further columns of a receipt get, for each message; nothing without them.
    fn further_columns(&self, candidates: &[(usize, ReceiptKey, &Message)]) -> Vec<Vec<Option<String>>> {
        if self.store.further().is_empty() {
            return Vec::new();
        }
        candidates.iter().map(|(_, _, message)| further_values(&self.store, message.record())).collect()
    }

    /// Also says whether the handler has written events.
    async fn run_handler(
        &self,
        txn: &mut S::Txn,
        fresh: &[(usize, Message)],
        trace: &mut Trace,
    ) -> (Result<(), Trouble>, bool) {
        if fresh.is_empty() {
            return (Ok(()), false);
        }
        failpoint("before-handler");
        let messages: Vec<Message> = fresh.iter().map(|(at, message)| trace.message(*at, message)).collect();
        trace.begin(Step::Handler);
        let call = call::call(&self.consumer, &self.apply, txn, &messages);
        // A panic ends the handler and not the transaction: what it left behind is still to be undone, and looked at.
        let (applied, events) = match AssertUnwindSafe(call).catch_unwind().await {
            Ok(returned) => returned,
            Err(panic) => {
                let trouble = Trouble::Failed { at: None, error: panic_error(panic.as_ref()) };
                trace.end_step(Some(&trouble));
                return (Err(trouble), false);
            }
        };
        let applied = applied.map_err(|failure| {
            let class = S::classify(failure.error.as_ref() as &(dyn Error + 'static));
            let at = failure.at.and_then(|at| fresh.get(at)).map(|(item, _)| *item);
            Trouble::new(class, at, with_values::<S>(failure.error, class)).of_the_handler()
        });
        trace.end_step(applied.as_ref().err());
        (applied, events)
    }
}

/// The first copy of each message in the batch; later copies are duplicates without asking the database. Also the places of
/// messages that are no copies although they have the key of an earlier one.
fn first_copies(items: &[Item]) -> (Vec<(usize, ReceiptKey, &Message)>, Vec<usize>) {
    let mut seen: HashMap<ReceiptKey, &Message> = HashMap::with_capacity(items.len());
    let (mut first, mut collisions) = (Vec::with_capacity(items.len()), Vec::new());
    for (at, item) in items.iter().enumerate() {
        let Item::Fit(message, key) = item else { continue };
        match seen.insert(*key, message) {
            None => first.push((at, *key, message)),
            Some(other) if (other.tenant(), other.id()) == (message.tenant(), message.id()) => {}
            Some(other) => {
                seen.insert(*key, other);
                collisions.push(at);
            }
        }
    }
    (first, collisions)
}

/// What became of the items of a transaction that has committed.
fn answers(
    partition: &Partition,
    items: &[Item],
    fresh: &[(usize, Message)],
    letters: &[DeadLetter],
    differing: &[bool],
) -> Vec<Answered> {
    let mut answers = vec![Answer::Duplicate; items.len()];
    for (answer, _) in answers.iter_mut().zip(differing).filter(|(_, differs)| **differs) {
        *answer = Answer::Differs;
    }
    for (at, _) in fresh {
        answers[*at] = Answer::Applied;
    }
    let parked: HashSet<i64> = letters.iter().map(|letter| letter.record.offset).collect();
    items
        .iter()
        .zip(answers)
        .map(|(item, answer)| {
            let delivery = item.offset();
            let answer = if parked.contains(&delivery) { Answer::Parked } else { answer };
            let skipped = matches!(answer, Answer::Duplicate | Answer::Differs);
            let cause = skipped.then(|| partition.cause_of(item.record()));
            Answered { delivery, answer, cause }
        })
        .collect()
}

/// Those that are skipped, by cause.
fn by_cause(answers: &[Answered]) -> Duplicates {
    answers.iter().filter_map(|one| one.cause).collect()
}

/// Somebody uses an id for two messages. One line for a transaction: whoever does so may do it often.
fn warn_of_differing(partition: &Partition, items: &[Item], answers: &[Answered]) {
    let mut differing = items.iter().zip(answers).filter(|(_, one)| one.answer == Answer::Differs);
    if let Some((item, _)) = differing.next() {
        let more = differing.count();
        warn!(position = %partition.key, id = %item, more, "skipped: the id was used for another message");
    }
}

fn panic_error(panic: &(dyn Any + Send)) -> BoxError {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    // What a panic says may quote anything: `unwrap` shows the whole error.
    let plain = "the handler panicked; its dead letter says more".to_owned();
    let whole = format!("the handler panicked: {text}");
    WithValues::new(Wording { whole: whole.clone(), plain }, whole).into()
}
