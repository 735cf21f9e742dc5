//! Times as the server keeps them: dates in milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::bson::DateTime;

/// The end of the year 9999. Later dates are not written as dates everywhere.
pub(crate) const LAST_MS: i64 = 253_402_300_799_999;

/// The clock of this process, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).map_or(LAST_MS, |ms| ms.min(LAST_MS)))
}

/// A date of this many milliseconds since 1970.
pub(crate) fn date(ms: i64) -> DateTime {
    DateTime::from_millis(ms.clamp(0, LAST_MS))
}

/// A duration to add to the clock. At most a century, so that it never overflows.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    const LONGEST: i64 = 100 * 365 * 24 * 60 * 60 * 1000;
    i64::try_from(duration.as_millis()).unwrap_or(LONGEST).min(LONGEST)
}
