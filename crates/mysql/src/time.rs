//! Times and durations as the server takes them: DATETIME(6) in UTC, whatever the session's time zone is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The end of the year 9999. A DATETIME ends there.
pub(crate) const LAST_MS: i64 = 253_402_300_799_999;

/// The clock of this process, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).map_or(LAST_MS, |ms| ms.min(LAST_MS)))
}

/// A duration to add to the clock. At most a century, so that it never overflows.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    const LONGEST: i64 = 100 * 365 * 24 * 60 * 60 * 1000;
    i64::try_from(duration.as_millis()).unwrap_or(LONGEST).min(LONGEST)
}

/// The milliseconds since 1970 of a column or an expression.
macro_rules! in_ms {
    ($time:literal) => {
        concat!("TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', ", $time, ") DIV 1000")
    };
}

/// The time of an expression in milliseconds since 1970, which must not be beyond [`LAST_MS`].
macro_rules! from_ms {
    ($ms:literal) => {
        concat!("(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL (", $ms, ") * 1000 MICROSECOND)")
    };
}

pub(crate) use {from_ms, in_ms};
