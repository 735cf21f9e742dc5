//! Brings a batch to its end: applied, retried, cut, parked or halted.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, warn};

use super::Engine;
use super::guard::Guarded;
use super::held::HeldKeys;
use super::isolation::{Blame, Next, Others, cut};
use super::item::Item;
use super::partition::Partition;
use super::policy::OnFailure;
use super::transaction::{Task, Trouble};
use crate::backoff;
use crate::error::describe_in_log;
use crate::mistake::mistaken;
use crate::monitor::LoopHandle;
use crate::source::{GivenBack, Why};
use crate::store::InboxStore;

/// After this many failures in a row for a passing reason, a batch is made smaller: it may be too large for something.
const TROUBLES_BEFORE_CUT: u32 = 2;

/// After this many, a message whose sender waits is given back.
const TROUBLES_BEFORE_GIVEN_BACK: u32 = 4;

/// What a lane that waits until something is mended has a problem with.
pub(super) const STANDS_STILL: &str = "stands still";

/// How a batch ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Every message is applied, skipped or parked.
    Finished,
    /// The stream closes; what is left will be delivered again.
    Closing,
    /// The partition stands still, for this reason.
    Stopped(String),
}

/// A part of a batch that is run as one transaction.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) range: Range<usize>,
    task: Task,
    /// Failures that are nobody's fault.
    troubles: u32,
    /// Failures that count as attempts of the one message.
    pub(super) failures: u32,
    /// Others were seen to succeed after it had failed: if it fails once more, it is to blame.
    pub(super) others_succeeded: bool,
}

impl Part {
    pub(super) fn of(range: Range<usize>) -> Self {
        Self { range, task: Task::Apply, troubles: 0, failures: 0, others_succeeded: false }
    }

    /// The same of one message, which stands at this index now.
    pub(super) fn at(self, index: usize) -> Self {
        Self { range: index..index + 1, ..self }
    }

    fn is_one_message(&self) -> bool {
        self.range.len() == 1
    }
}

/// A batch of a lane.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) partition: &'a Arc<Partition>,
    pub(crate) lane: usize,
    pub(crate) items: &'a Arc<Vec<Item>>,
    /// Set when the batch is one message under the crash guard.
    pub(crate) guarded: Option<&'a Guarded<'a>>,
    pub(crate) health: &'a LoopHandle,
}

impl<S: InboxStore> Engine<S> {
    /// Settles all messages in their order, or says why not.
    pub(crate) async fn finish(self: &Arc<Self>, batch: Batch<'_>) -> End {
        self.finish_parts(batch, vec![Part::of(0..batch.items.len())], None).await
    }

    /// Settles the messages of these parts, the next one on top; or says why not. Parts run strictly one after another, so
    /// order per key holds. With `held`, a message that waits for its next try is put there and does not hold up the others.
    pub(crate) async fn finish_parts(
        self: &Arc<Self>,
        batch: Batch<'_>,
        mut parts: Vec<Part>,
        mut held: Option<&mut HeldKeys>,
    ) -> End {
        let Batch { partition, items, health, .. } = batch;
        while let Some(mut part) = parts.pop() {
            if !self.until_resumed(partition, health).await {
                return End::Closing;
            }
            let (range, task) = (part.range.clone(), part.task.clone());
            let run = match batch.guarded {
                Some(guarded) => self.transact_alone(partition, items, range, task, guarded).await,
                None => self.transact(partition, items, range, task, None).await,
            };
            let trouble = match run {
                Ok(()) => {
                    health.succeeded();
                    health.over(STANDS_STILL);
                    continue;
                }
                Err(trouble) => trouble,
            };
            match self.after_trouble(batch, &mut part, trouble).await {
                Next::Cut(culprit) => {
                    parts.extend(cut(part.range, culprit).into_iter().rev().map(Part::of));
                    continue;
                }
                Next::Park(error) => {
                    part.task = Task::Park { error, attempts: part.failures };
                    parts.push(part);
                    continue;
                }
                Next::Stop(reason) => return End::Stopped(reason),
                Next::GiveBack(given_back) => {
                    partition.give_back(items[part.range].iter().map(Item::offset), &given_back);
                }
                Next::Later(wait) if held.is_some() && !mistaken("RetryHoldsLane") => {
                    let due = Instant::now() + wait;
                    if let Some(held) = held.as_deref_mut() {
                        partition.queues.keep(held.hold(items, part, &mut parts, due));
                    }
                }
                Next::Again(wait) | Next::Later(wait) => {
                    parts.push(part);
                    tokio::select! {
                        biased;
                        () = partition.closing.cancelled() => return End::Closing,
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
        End::Finished
    }

    async fn after_trouble(self: &Arc<Self>, batch: Batch<'_>, part: &mut Part, trouble: Trouble) -> Next {
        let Batch { partition, items, health, .. } = batch;
        let item = &items[part.range.start];
        match trouble {
            Trouble::Fenced => {
                partition.mark_fenced();
                Next::Stop(
                    "another process has taken over this partition; nothing of the last batch was applied here"
                        .to_owned(),
                )
            }
            Trouble::BeginAnew(reason) => {
                partition.begin_anew();
                Next::Stop(format!("the answer to a commit got lost, so the partition begins anew: {reason}"))
            }
            Trouble::KeepsCrashing(reason) if self.gives_back(partition) => {
                Next::GiveBack(GivenBack::new(Why::Failed, reason))
            }
            Trouble::KeepsCrashing(reason) if partition.deliveries.is_some() => Next::Stop(format!(
                "halted at {item}: {reason}. Take it out of the queue, or set on_failure to \"park\""
            )),
            Trouble::KeepsCrashing(reason) => {
                partition.keep_attempts();
                Next::Stop(format!(
                    "halted at {item}: {reason}. To try it again: `oncebox position move --consumer {} --topic {} \
                     --partition {} --to {}`; to skip it, --to {} with --accept-loss",
                    partition.key.consumer,
                    partition.key.topic,
                    partition.key.partition,
                    item.offset(),
                    item.offset() + 1
                ))
            }
            Trouble::Torn(reason) => Next::Stop(reason),
            Trouble::Away(reason) => {
                part.troubles += 1;
                self.report_trouble(partition, &reason, part.troubles, health);
                if self.answers_trouble(partition) {
                    return Next::GiveBack(GivenBack::new(Why::Unavailable, reason));
                }
                Next::Again(backoff::TROUBLE.delay(part.troubles))
            }
            Trouble::Transient { error, counts }
                if counts
                    && part.is_one_message()
                    && matches!(part.task, Task::Apply)
                    && !mistaken("TransientNeverCounts") =>
            {
                self.blame(batch, part, error, Blame::Unsure).await
            }
            Trouble::Transient { error, .. } => {
                part.troubles += 1;
                let reason = describe_in_log(error.as_ref());
                self.report_trouble(partition, &reason, part.troubles, health);
                let cut = part.troubles >= TROUBLES_BEFORE_CUT && !mistaken("BatchNeverCut");
                if cut && !part.is_one_message() {
                    return Next::Cut(None);
                }
                if self.answers_trouble(partition) && part.troubles > TROUBLES_BEFORE_GIVEN_BACK {
                    return Next::GiveBack(GivenBack::new(Why::Unavailable, reason));
                }
                Next::Again(backoff::TROUBLE.delay(part.troubles))
            }
            Trouble::Environment { at, error } | Trouble::Failed { at, error } if !part.is_one_message() => {
                warn!(
                    position = %partition.key, messages = part.range.len(), reason = describe_in_log(error.as_ref()),
                    "a batch failed and is undone; trying it in smaller parts"
                );
                Next::Cut(at)
            }
            Trouble::Failed { error, .. } if matches!(part.task, Task::Park { .. }) => {
                let reason = describe_in_log(error.as_ref());
                Next::Stop(format!("{item} cannot be kept as a dead letter: {reason}"))
            }
            Trouble::Environment { error, .. } if self.answers_trouble(partition) => {
                let reason = describe_in_log(error.as_ref());
                health.failed(&reason);
                Next::GiveBack(GivenBack::new(Why::Unavailable, reason))
            }
            Trouble::Environment { error, .. } => {
                let applies = matches!(part.task, Task::Apply);
                if applies {
                    match self.how_others_do(batch, part.range.start).await {
                        Others::Succeed => return self.blame(batch, part, error, Blame::Message).await,
                        Others::Torn(reason) => return Next::Stop(reason),
                        Others::Fail | Others::Unknown => {}
                    }
                }
                part.troubles += 1;
                self.wait_until_mended(batch, item, &describe_in_log(error.as_ref()), part.troubles)
            }
            Trouble::Failed { error, .. } => self.blame(batch, part, error, Blame::Message).await,
            Trouble::NothingToTry => Next::Again(Duration::ZERO),
        }
    }

    /// Whether a message that fails goes back to its source. A log takes nothing back.
    pub(super) fn gives_back(&self, partition: &Partition) -> bool {
        self.settings.on_failure == OnFailure::GiveBack && partition.deliveries.is_some()
    }

    /// Whether trouble for which no message is to blame is an answer, because somebody waits for one.
    pub(super) fn answers_trouble(&self, partition: &Partition) -> bool {
        self.gives_back(partition) && partition.sender_waits()
    }

    /// The world is to blame: nothing is given up, and it goes on by itself when the cause is mended.
    pub(super) fn wait_until_mended(
        &self,
        batch: Batch<'_>,
        item: &Item,
        reason: &str,
        troubles: u32,
    ) -> Next {
        if batch.health.problem(STANDS_STILL, format!("stands still at {item}: {reason}")) {
            error!(
                position = %batch.partition.key, message = %item, tries = troubles, reason,
                "standing still: no message is to blame. Mend the cause; it goes on by itself"
            );
        }
        Next::Again(backoff::TROUBLE.delay(troubles))
    }

    /// Says it at the first time and then less and less often: a database that is away must not flood the log, whatever the
    /// number of lanes.
    pub(crate) fn report_trouble(
        &self,
        partition: &Partition,
        reason: &str,
        troubles: u32,
        health: &LoopHandle,
    ) {
        if health.failed(reason) {
            warn!(position = %partition.key, tries = troubles, reason, "the database is in trouble; trying again");
        }
    }
}
