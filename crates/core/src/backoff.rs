//! How long to wait before something is tried again: one formula, and each use of it with a name and a reason.

use std::time::Duration;

/// Waits that double from `min` to `max`.
///
/// ```
/// use std::time::Duration;
/// use oncebox::Backoff;
///
/// let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// assert!(backoff.delay(1) <= Duration::from_millis(200));
/// assert!(backoff.delay(3) <= Duration::from_millis(800));
/// assert!(backoff.delay(100) <= Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure; doubles from there.
    pub min: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Backoff {
    /// From `min` to `max`.
    #[must_use]
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max }
    }

    const fn from_millis(min: u64, max: u64) -> Self {
        Self::new(Duration::from_millis(min), Duration::from_millis(max))
    }

    /// The same with another longest wait.
    #[must_use]
    pub const fn up_to(self, max: Duration) -> Self {
        Self { max, ..self }
    }

    /// The wait after `failures` failures (1 for the first): doubled each time, capped, with up to a half taken off at
    /// random so that many processes do not come back in step.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let doubled = self.min.saturating_mul(1_u32 << failures.saturating_sub(1).min(20));
        let capped = doubled.min(self.max);
        capped.mul_f64(1.0 - fastrand::f64() / 2.0)
    }
}

/// A message that failed. Most causes pass within a second; a rate of two tries a minute hurts nobody.
pub const MESSAGE: Backoff = Backoff::from_millis(200, 30_000);

/// An event whose delivery failed. Its receiver is somebody else's server, which is spared.
pub const EVENT: Backoff = Backoff::from_millis(500, 60_000);

/// A row that several processes write in turn, and somebody came in between.
pub(crate) const TURN: Backoff = Backoff::from_millis(2, 200);

/// A batch or a position when no message is to blame: a deadlock is over at once, and a database that is back should not
/// wait for us. There is no last try: the process stays up and `/healthz` says so.
pub(crate) const TROUBLE: Backoff = Backoff::from_millis(50, 5_000);

/// Writing down what the relay has delivered. Short: the lease runs meanwhile, and what is not written is published again.
pub(crate) const DELIVERIES: Backoff = Backoff::from_millis(200, 2_000);

/// Asking where the log of a partition begins and ends. A leader is elected within seconds, and the partition stands still.
pub const PARTITION: Backoff = Backoff::from_millis(100, 2_000);

/// A source that ended. It joins its group anew, which costs every member a rebalance.
pub const SOURCE: Backoff = Backoff::from_millis(500, 30_000);

/// A connection to a broker that was lost. It costs the broker a handshake, and messages wait meanwhile.
pub const CONNECTION: Backoff = Backoff::from_millis(200, 10_000);

/// A message that goes back to a broker, which delivers it again at once. Each time counts for the limit of a quorum queue.
pub const GIVEN_BACK: Backoff = Backoff::from_millis(1_000, 30_000);

/// A loop of the daemon that panicked. Nothing outside is waited for, so only the log has to be spared.
pub const LOOP: Backoff = Backoff::from_millis(200, 30_000);

/// The daemon's start while the database is away. Somebody may be looking at it.
pub const SETUP: Backoff = Backoff::from_millis(200, 10_000);

/// A sweep that failed. Its next run is at most a minute away.
pub const SWEEP: Backoff = Backoff::from_millis(200, 60_000);

/// A question to the broker without whose answer an inbox does not start.
pub const QUESTION: Backoff = Backoff::from_millis(200, 30_000);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn delay_stays_within_its_bounds(failures in 1_u32..100, min in 1_u64..1_000, max in 1_000_u64..60_000) {
            let delay = Backoff::from_millis(min, max).delay(failures);
            prop_assert!(delay >= Duration::from_millis(min) / 2);
            prop_assert!(delay <= Duration::from_millis(max));
        }
    }
}
