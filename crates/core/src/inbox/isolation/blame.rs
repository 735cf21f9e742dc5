//! A message failed alone: is it tried again, given up, or is something else to blame?

use std::sync::Arc;
use std::time::Duration;

use tracing::{error, warn};

use super::probe::Others;
use crate::error::{BoxError, Outcome, describe_in_log, describe_whole};
use crate::inbox::Engine;
use crate::inbox::batch::{Batch, Part};
use crate::inbox::policy::OnFailure;
use crate::source::{GivenBack, Why};
use crate::store::InboxStore;

/// What happens to a part of a batch that failed.
pub(in crate::inbox) enum Next {
    /// The same again, after this time.
    Again(Duration),
    /// The one message again, after this time. Others need not wait for it, if order allows.
    Later(Duration),
    /// Smaller parts; this message alone, if it is known.
    Cut(Option<usize>),
    /// The one message is kept as a dead letter, for this reason.
    Park(String),
    /// Back to the source.
    GiveBack(GivenBack),
    /// The partition stands still, for this reason.
    Stop(String),
}

/// What was in the way may be gone the next time, however few attempts a message has.
const MIN_ATTEMPTS_WHEN_UNSURE: u32 = 3;

/// How sure it is that a message failed for a reason of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::inbox) enum Blame {
    /// As far as the error tells.
    Message,
    /// Something was in its way, which may be itself or something else.
    Unsure,
}

impl<S: InboxStore> Engine<S> {
    /// The one message of this part has failed, and that counts.
    pub(in crate::inbox) async fn blame(
        self: &Arc<Self>,
        batch: Batch<'_>,
        part: &mut Part,
        error: BoxError,
        blame: Blame,
    ) -> Next {
        part.failures += 1;
        let failures = part.failures;
        let item = &batch.items[part.range.start];
        let reason = describe_in_log(error.as_ref());
        let outcome = Outcome::of(error.as_ref());
        let rejected = matches!(outcome, Some(Outcome::Reject { .. }));
        let retry = self.retry.get();
        let attempts = match blame {
            Blame::Message => retry.attempts,
            Blame::Unsure => retry.attempts.max(MIN_ATTEMPTS_WHEN_UNSURE),
        };
        if !rejected && failures < attempts {
            batch.health.failed(&reason);
            self.meters.retried.increment(1);
            warn!(position = %batch.partition.key, id = %item, attempt = failures, reason, "the message failed and will be tried again");
            return Next::Later(match outcome {
                Some(Outcome::RetryAfter { delay, .. }) => delay,
                _ => retry.backoff.delay(failures),
            });
        }
        let why = match blame {
            _ if rejected => Why::Rejected,
            Blame::Message => Why::Failed,
            Blame::Unsure => Why::Unavailable,
        };
        if self.answers_trouble(batch.partition) {
            batch.health.failed(&reason);
            // What a handler says when it rejects is for the sender, who knows the message.
            let reason = if rejected { describe_whole(error.as_ref()) } else { reason };
            return Next::GiveBack(GivenBack::new(why, reason));
        }
        // Who rejects a message has looked at it. Any other error may have nothing to do with it.
        let streak = self.streak.is_longer_than(self.settings.streak_limit);
        if !rejected && !part.others_succeeded && (streak || blame == Blame::Unsure) {
            match self.how_others_do(batch, part.range.start).await {
                // What was in the way may have gone while they were tried.
                Others::Succeed => {
                    part.others_succeeded = true;
                    return Next::Again(Duration::ZERO);
                }
                Others::Torn(reason) => return Next::Stop(reason),
                Others::Unknown if !streak => {}
                Others::Fail | Others::Unknown => {
                    let reason = format!("{reason} (so do the messages around it)");
                    return self.wait_until_mended(batch, item, &reason, failures);
                }
            }
        }
        if self.gives_back(batch.partition) {
            batch.health.failed(&reason);
            warn!(position = %batch.partition.key, id = %item, attempts = failures, reason, "the message is given back");
            return Next::GiveBack(GivenBack::new(why, reason));
        }
        // A log takes nothing back.
        if matches!(self.settings.on_failure, OnFailure::Halt | OnFailure::GiveBack) {
            return Next::Stop(format!(
                "halted at {item} after {failures} attempts: {reason}. Mend the cause and restart, or set on_failure to \
                 \"park\""
            ));
        }
        if !rejected {
            self.streak.one_given_up();
        }
        error!(position = %batch.partition.key, id = %item, attempts = failures, reason, "the message is given up: see `oncebox dead list`");
        Next::Park(describe_whole(error.as_ref()))
    }
}
