//! The time of day that timestamps of requests are compared with.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time of day. Senders write theirs into what they sign, so this is the clock of the machine, as it is set now.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl WallClock {
    /// The clock of the machine.
    #[must_use]
    pub fn system() -> Self {
        Self::from_fn(SystemTime::now)
    }

    /// A clock of one's own: for tests with signatures that were made long ago.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use oncebox::http::WallClock;
    ///
    /// let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_614_265_330);
    /// assert_eq!(WallClock::from_fn(move || then).now_s(), 1_614_265_330);
    /// ```
    pub fn from_fn(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn now_s(&self) -> i64 {
        self.now_ms().div_euclid(1000)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        let since = (self.0)().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}
