//! The time of day that retention goes by.

use std::time::SystemTime;

use tokio::time::Instant;

/// A time of day that does not jump: read once from the system, then counted on by the monotonic clock. Whatever happens to
/// the clocks of this machine or of the database while the process runs, this one goes on.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started_ms: i64,
    since: Instant,
}

impl Clock {
    /// Begins with the system's time of day.
    #[must_use]
    pub fn system() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self::starting_at(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
    }

    /// Begins with this time, in milliseconds since 1970.
    #[must_use]
    pub fn starting_at(now_ms: i64) -> Self {
        Self { started_ms: now_ms, since: Instant::now() }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.ms_at(Instant::now())
    }

    /// What it showed at this moment, in milliseconds since 1970. A moment before its beginning counts as its beginning.
    pub(crate) fn ms_at(&self, moment: Instant) -> i64 {
        let elapsed = moment.saturating_duration_since(self.since).as_millis();
        self.started_ms.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn goes_on_by_the_monotonic_clock() {
        let clock = Clock::starting_at(1_000);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(clock.now_ms(), 61_000);
    }
}
