//! Brings a batch to its end: applied, retried, cut, parked or halted.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info, warn};

use super::Engine;
use super::transact::{Item, Task, Trouble};
use crate::error::{Outcome, describe};
use crate::handler::Apply;
use crate::isolate::cut;
use crate::monitor::LoopHandle;
use crate::policy::{OnFailure, RetryPolicy};
use crate::store::Store;
use crate::stream::Shared;

/// How long to wait between tries when the database is in trouble. No attempts are counted and there is no end: the
/// process stays up and `/healthz` says so.
pub(crate) const TROUBLE_BACKOFF: RetryPolicy = RetryPolicy {
    attempts: u32::MAX,
    backoff_min: Duration::from_millis(50),
    backoff_max: Duration::from_secs(5),
};

/// How a batch ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Every message is applied, skipped or parked.
    Settled,
    /// The stream closes; what is left will be delivered again.
    Closing,
    /// The partition stands still, for this reason.
    Stopped(String),
}

impl<S: Store, A: Apply<S>> Engine<S, A> {
    /// Settles all items in their order. `attempt` is the recorded attempt when they run one at a time.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        items: &Arc<Vec<Item>>,
        first_task: Task,
        attempt: Option<i64>,
        health: &LoopHandle,
    ) -> End {
        // Parts still to do, the next one on top. Parts run strictly one after another, so order per key holds.
        let mut parts = vec![(0..items.len(), first_task)];
        let mut troubles = 0_u32;
        let mut failures = 0_u32;
        while let Some((range, task)) = parts.pop() {
            let trouble = match self.transact(shared, items, range.clone(), task.clone(), attempt).await {
                Ok(()) => {
                    (troubles, failures) = (0, 0);
                    health.succeeded();
                    continue;
                }
                Err(trouble) => trouble,
            };
            let wait = match trouble {
                Trouble::Fenced => {
                    shared.mark_fenced();
                    return End::Stopped(
                        "another process has taken over this partition; nothing of the last batch was applied here"
                            .to_owned(),
                    );
                }
                Trouble::Transient(reason) => {
                    troubles += 1;
                    self.report_trouble(shared, &reason, troubles, health);
                    parts.push((range, task));
                    TROUBLE_BACKOFF.delay(troubles)
                }
                Trouble::Failed { at, error: _ } if range.len() > 1 => {
                    parts.extend(cut(range, at).into_iter().rev().map(|part| (part, Task::Apply)));
                    continue;
                }
                Trouble::Failed { error, .. } if matches!(task, Task::Park { .. }) => {
                    let (message, reason) = (describe_item(&items[range.start]), describe(error.as_ref()));
                    return End::Stopped(format!("{message} cannot be kept as a dead letter: {reason}"));
                }
                Trouble::Failed { error, .. } => {
                    failures += 1;
                    let reason = describe(error.as_ref());
                    match self.after_failure(
                        &items[range.start],
                        failures,
                        outcome_of(error.as_ref()).as_ref(),
                        &reason,
                    ) {
                        Next::Retry(wait) => {
                            health.failed(reason);
                            self.meters.retried.increment(1);
                            parts.push((range, task));
                            wait
                        }
                        Next::Park => {
                            parts.push((range, Task::Park { error: reason, attempts: failures }));
                            continue;
                        }
                        Next::Halt(reason) => return End::Stopped(reason),
                    }
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shared.closing.cancelled() => return End::Closing,
            }
            if shared.closing.is_cancelled() {
                return End::Closing;
            }
        }
        End::Settled
    }

    fn after_failure(&self, item: &Item, failures: u32, outcome: Option<&Outcome>, reason: &str) -> Next {
        let rejected = matches!(outcome, Some(Outcome::Reject { .. }));
        let message = describe_item(item);
        if !rejected && failures < self.settings.retry.attempts {
            warn!(consumer = %self.consumer, id = message, attempt = failures, reason, "the message failed and will be tried again");
            return Next::Retry(match outcome {
                Some(Outcome::RetryAfter { delay, .. }) => *delay,
                _ => self.settings.retry.delay(failures),
            });
        }
        if self.settings.on_failure == OnFailure::Halt {
            return Next::Halt(format!(
                "halted at {message} after {failures} attempts: {reason}. Mend the cause and restart, or set on_failure to \
                 \"park\""
            ));
        }
        error!(consumer = %self.consumer, id = message, attempts = failures, reason, "the message is given up: see `oncebox dead list`");
        Next::Park
    }

    /// Says it at the first time and then ever more seldom: a database that is away must not flood the log.
    pub(crate) fn report_trouble(&self, shared: &Shared, reason: &str, troubles: u32, health: &LoopHandle) {
        health.failed(reason);
        let place = format!("{}/{}", shared.topic, shared.partition);
        if troubles.is_power_of_two() {
            warn!(consumer = %self.consumer, place, tries = troubles, reason, "the database is in trouble; trying again");
        } else {
            info!(consumer = %self.consumer, place, tries = troubles, "still trying");
        }
    }
}

enum Next {
    Retry(Duration),
    Park,
    Halt(String),
}

/// What the handler asked for, even when it was wrapped by a context.
fn outcome_of(error: &(dyn Error + 'static)) -> Option<Outcome> {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(outcome) = inner.downcast_ref::<Outcome>() {
            return Some(outcome.clone());
        }
        cause = inner.source();
    }
    None
}

fn describe_item(item: &Item) -> String {
    match item {
        Item::Fit(message, _) => format!("{} at {}", message.id(), message.record().coordinates()),
        Item::Unfit(unfit) => unfit.record.coordinates(),
    }
}
