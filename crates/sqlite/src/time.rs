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

/// How SQLite says: that much later.
pub(crate) fn after(duration: Duration) -> String {
    format!("+{:.3} seconds", duration.min(LONGEST).as_secs_f64())
}

/// How SQLite says: that long ago.
pub(crate) fn before(duration: Duration) -> String {
    format!("-{:.3} seconds", duration.min(LONGEST).as_secs_f64())
}
