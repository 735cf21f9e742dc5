//! Answers on stdout: a table for people, one JSON document for programs. Everything else on stderr.
//!
//! Whatever is written here may come from a message: nothing in it is obeyed by the terminal that shows it.

use std::io::{self, IsTerminal, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use oncebox_core::message::Headers;
use oncebox_core::printable::{printable, printable_json, printable_lines};
use oncebox_core::store::PositionStatus;
use serde::Serialize;
use serde_json::{Value, json};

/// Writes a line, or a table of several, to stdout. A reader that went away (`| head`) is not an error: the exit code is that
/// of the answer.
pub(crate) fn line(text: &str) -> io::Result<()> {
    write(&printable_lines(text))
}

/// Writes a line that begins with a word in a colour.
pub(crate) fn coloured_line(colour: u8, word: &str, text: &str) -> io::Result<()> {
    write(&format!("\u{1b}[{colour}m{}\u{1b}[0m{}", printable(word), printable(text)))
}

fn write(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Tells something beside the answer, on stderr. If nobody listens there, work goes on.
pub(crate) fn note(text: &str) {
    writeln!(io::stderr(), "{}", printable_lines(text)).ok();
}

/// One JSON document.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    write(&json_text(value)?)
}

/// A JSON document that is safe to look at.
pub(crate) fn json_text(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(printable_json(&serde_json::to_string_pretty(value)?).into_owned())
}

/// A line of what is shown whole: its name, and a value from outside.
pub(crate) fn entry(name: &str, value: &impl ToString) -> io::Result<()> {
    line(&format!("{name:<12}{}", printable(&value.to_string())))
}

/// A table with a header.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for row in rows {
        table.add_row(row.map(|cell| printable(&cell).into_owned()));
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

/// How often a partition was taken over without progress. A queue is not taken over: whoever writes its row counts there.
pub(crate) fn starts(position: &PositionStatus) -> Option<u32> {
    position.next_offset.map(|_| position.starts)
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
    let line = printable(error.lines().next().unwrap_or_default());
    if line.chars().count() <= 80 {
        line.into_owned()
    } else {
        line.chars().take(79).chain(['…']).collect()
    }
}

/// A bar on stderr while something takes a while; hidden when stderr is not a terminal.
pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    let target =
        if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(length), target).with_style(style)
}
