//! The settings of a consumer: how large a batch may grow, how often a message is tried, what happens then.

use std::time::Duration;

/// How large one transaction may grow. Both bounds hold; one message always fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBounds {
    /// The most messages in one batch.
    pub messages: usize,
    /// The most payload, key and header bytes in one batch.
    pub bytes: usize,
}

impl Default for BatchBounds {
    fn default() -> Self {
        Self { messages: 500, bytes: 4 * 1024 * 1024 }
    }
}

/// How often a failing message is tried, and how long to wait in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The attempts a message gets before `on_failure` decides; at least one.
    pub attempts: u32,
    /// The wait after the first failure; doubles from there.
    pub backoff_min: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 5, backoff_min: Duration::from_millis(200), backoff_max: Duration::from_secs(30) }
    }
}

impl RetryPolicy {
    /// The wait after `failures` failures (1 for the first): doubled each time, capped, with up to a half taken off at
    /// random so that many processes do not come back in step.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let doubled = self.backoff_min.saturating_mul(1_u32 << failures.saturating_sub(1).min(20));
        let capped = doubled.min(self.backoff_max);
        capped.mul_f64(1.0 - fastrand::f64() / 2.0)
    }
}

/// What happens to a message that used up its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Keep it as a dead letter and go on.
    #[default]
    Park,
    /// Keep it as a dead letter, and the later messages of its key behind it, so that their order survives.
    ParkKey,
    /// Stop the partition and wait for an operator.
    Halt,
}

/// Where to begin when no position is known. What the group has committed is then a question, not an answer, unless
/// [`StartPolicy::Group`] says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartPolicy {
    /// At the oldest message.
    #[default]
    Earliest,
    /// Behind the newest message.
    Latest,
    /// Where the group left off: for a team that moves an existing consumer to oncebox. At the oldest message where the
    /// group has committed nothing.
    Group,
    /// Stop with an error and let an operator decide.
    Fail,
}

/// What happens to a message older than the receipts that purge has removed: it may be a duplicate, and nobody can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StalePolicy {
    /// Apply it. Right for a new consumer that reads history.
    #[default]
    Apply,
    /// Keep it as a dead letter.
    Park,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn delay_stays_within_its_bounds(failures in 1_u32..100, min in 1_u64..1_000, max in 1_000_u64..60_000) {
            let policy = RetryPolicy {
                attempts: 5,
                backoff_min: Duration::from_millis(min),
                backoff_max: Duration::from_millis(max),
            };
            let delay = policy.delay(failures);
            prop_assert!(delay >= Duration::from_millis(min) / 2);
            prop_assert!(delay <= Duration::from_millis(max));
        }
    }
}
