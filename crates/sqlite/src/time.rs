//! Times as SQL: ISO 8601 in UTC with milliseconds. People can read them, and they sort as text.

use std::time::Duration;

/// SQLite has no time after the year 9999; nobody waits that long.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The database's clock.
macro_rules! now {
    () => {
        "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
    };
}

/// The database's clock, moved by a parameter or a column that [`after`] or [`before`] made.
macro_rules! now_moved {
    ($by:literal) => {
        concat!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ", $by, ")")
    };
}

/// A stored time, as milliseconds since 1970.
macro_rules! millis {
    ($column:expr) => {
        concat!("CAST(round(unixepoch(", $column, ", 'subsec') * 1000) AS INTEGER)")
    };
}

pub(crate) use {millis, now, now_moved};

/// A time in milliseconds since 1970 as it is stored. SQLite's years end with 9999, and nothing of ours was before 1970.
pub(crate) fn stored(ms: i64) -> String {
    const LAST_MS: i64 = 253_402_300_799_999;
    let time = jiff::Timestamp::from_millisecond(ms.clamp(0, LAST_MS)).unwrap_or_default();
    format!("{time:.3}")
}

/// How SQLite says: that much later.
pub(crate) fn after(duration: Duration) -> String {
    format!("+{:.3} seconds", duration.min(LONGEST).as_secs_f64())
}

/// How SQLite says: that long ago.
pub(crate) fn before(duration: Duration) -> String {
    format!("-{:.3} seconds", duration.min(LONGEST).as_secs_f64())
}
