//! Answers on stdout: a table for people, one JSON document for programs.

use std::io::{self, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;
use oncebox_core::Headers;
use serde::Serialize;
use serde_json::{Value, json};

/// Writes a line to stdout. A reader that went away (`| head`) is no error.
pub(crate) fn line(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// One JSON document.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// A table with a header.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table
}

/// A time for people: UTC, to the second.
pub(crate) fn time(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(t) => t.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => ms.to_string(),
    }
}

/// `None` as a dash.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

/// Bytes as text, as far as they are text.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes that may be absent, for people.
pub(crate) fn text(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| "(none)".to_owned(), lossy)
}

/// Headers as JSON, with repeated names.
pub(crate) fn headers(headers: &Headers) -> Vec<Value> {
    headers.iter().map(|(name, value)| json!({"name": name, "value": value.map(lossy)})).collect()
}

/// The first line of an error, cut to what a table can show.
pub(crate) fn short(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    if line.chars().count() <= 80 { line.to_owned() } else { line.chars().take(79).chain(['…']).collect() }
}

/// A spinner on stderr while something takes long; hidden when stderr is no terminal.
pub(crate) fn spinner(text: &'static str) -> indicatif::ProgressBar {
    let spinner = indicatif::ProgressBar::new_spinner().with_message(text);
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    spinner
}
