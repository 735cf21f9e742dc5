//! Times as SQL: ISO 8601 in UTC with milliseconds. People can read them, and they sort as text.

/// The database's clock.
macro_rules! now {
    () => {
        "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
    };
}

/// A stored time, as milliseconds since 1970.
macro_rules! millis {
    ($column:literal) => {
        concat!("CAST(round(unixepoch(", $column, ", 'subsec') * 1000) AS INTEGER)")
    };
}

pub(crate) use {millis, now};
