//! Answers on stdout: a table for people, one JSON document for programs. Everything else on stderr.
//!
//! Whatever is written here may come from a message: nothing in it is obeyed by the terminal that shows it.

use std::io::{self, IsTerminal, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use oncebox_core::message::Headers;
use oncebox_core::printable::{printable, printable_json, printable_lines};
use oncebox_core::store::PositionStatus;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::{Answer, CommandResult, Exit, Failure};

/// How much is shown of bytes that are no text.
const MAX_SHOWN_BYTES: usize = 64;

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
    write_to_reader(text).map(|_| ())
}

/// False if nobody reads any more.
fn write_to_reader(text: &str) -> io::Result<bool> {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e),
    }
}

/// Writes a text in place of the one before, on a terminal; below it otherwise. False if nobody reads any more.
pub(crate) fn frame(text: &str) -> io::Result<bool> {
    let text = printable_lines(text);
    if io::stdout().is_terminal() {
        write_to_reader(&format!("\u{1b}[H\u{1b}[2J{text}"))
    } else {
        write_to_reader(&format!("{text}\n"))
    }
}

/// One JSON document on one line. False if nobody reads any more.
pub(crate) fn json_line(value: &impl Serialize) -> io::Result<bool> {
    write_to_reader(&printable_json(&serde_json::to_string(value)?))
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

/// A time, for people and programs the same: UTC, as RFC 3339 has it.
pub(crate) fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}

/// `None` as a dash.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

/// How often a partition was taken over without progress. A queue is not taken over: whoever writes its row counts there.
pub(crate) fn starts(position: &PositionStatus) -> Option<u32> {
    position.next_offset.map(|_| position.starts)
}

/// Bytes that may be absent, for people: as text if they are, else in hexadecimal.
pub(crate) fn text(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else { return "(none)".to_owned() };
    std::str::from_utf8(bytes).map_or_else(|_| hexadecimal(bytes), str::to_owned)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().take(MAX_SHOWN_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let more = if bytes.len() > MAX_SHOWN_BYTES { "…" } else { "" };
    format!("0x{digits}{more} ({} bytes, not UTF-8)", bytes.len())
}

/// Adds bytes to a JSON object. What is text stands under `name`. What is not stands under `name_base64`, whole, and `name` is
/// null.
pub(crate) fn put_bytes(object: &mut Value, name: &str, bytes: Option<&[u8]>) {
    object[name] = match bytes.map(std::str::from_utf8) {
        Some(Ok(text)) => Value::from(text),
        Some(Err(_)) | None => Value::Null,
    };
    if let Some(bytes) = bytes.filter(|bytes| std::str::from_utf8(bytes).is_err()) {
        object[format!("{name}_base64")] = Value::from(STANDARD.encode(bytes));
    }
}

/// Headers as JSON, with repeated names.
pub(crate) fn headers(headers: &Headers) -> Vec<Value> {
    let header = |(name, value): (&str, Option<&[u8]>)| {
        let mut header = json!({"name": name});
        put_bytes(&mut header, "value", value);
        header
    };
    headers.iter().map(header).collect()
}

/// The bytes of a payload and nothing else, for a file or another program.
pub(crate) fn raw(payload: Option<&[u8]>) -> CommandResult {
    let mut stdout = io::stdout();
    if stdout.is_terminal() {
        let text = "--raw writes the bytes as they are, which a terminal may obey: send them to a file or to another program";
        return Err(Failure { exit: Exit::Usage, text: text.to_owned() });
    }
    let Some(payload) = payload else {
        note("it has no payload (a tombstone)");
        return Ok(Answer::No);
    };
    match stdout.write_all(payload).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(Answer::Yes),
    }
}

/// Whether a list is a positive answer: if it is empty although nothing was asked for in particular, it is.
pub(crate) fn listed(is_empty: bool, is_filtered: bool) -> CommandResult {
    Ok(if is_empty && is_filtered { Answer::No } else { Answer::Yes })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_not_lost() {
        let mut object = json!({});
        put_bytes(&mut object, "payload", Some(&[0x00, 0xff, 0x01]));
        put_bytes(&mut object, "key", Some(b"sku-1"));
        put_bytes(&mut object, "none", None);
        assert_eq!(object, json!({"payload": null, "payload_base64": "AP8B", "key": "sku-1", "none": null}));
        assert_eq!(text(Some(&[0x00, 0xff, 0x01])), "0x00ff01 (3 bytes, not UTF-8)");
        assert_eq!(text(Some(&[0xff; 100])), format!("0x{}… (100 bytes, not UTF-8)", "ff".repeat(64)));
    }

    #[test]
    fn a_time_is_one_that_programs_read() {
        assert_eq!(time(1_767_225_600_000), "2026-01-01T00:00:00Z");
        assert_eq!(time(1_767_225_600_007), "2026-01-01T00:00:00.007Z");
        assert_eq!(
            time(1_767_225_600_007).parse::<Timestamp>().expect("a time").as_millisecond(),
            1_767_225_600_007
        );
    }
}
