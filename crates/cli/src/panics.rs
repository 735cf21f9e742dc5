//! A panic is told in one line of the log, and telling it never fails.
//!
//! A panic inside the hook would abort the process. So it does not go through the subscriber, which may be where the panic
//! came from, and a line that cannot be written is lost.

use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};
use std::thread;

use oncebox_core::printable::{printable, printable_json};
use serde_json::json;

use crate::args::LogFormat;

/// Replaces the hook of the standard library.
pub(crate) fn install(format: LogFormat) {
    panic::set_hook(Box::new(move |info| {
        let line = line(format, jiff::Timestamp::now(), &text(info));
        io::stderr().write_all(line.as_bytes()).ok();
    }));
}

fn text(info: &PanicHookInfo<'_>) -> String {
    let what = info.payload_as_str().unwrap_or("no text");
    let place = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
    let thread = thread::current();
    format!("panic in thread {}{place}: {what}", thread.name().unwrap_or("without a name"))
}

/// As a line of the log looks.
fn line(format: LogFormat, now: jiff::Timestamp, text: &str) -> String {
    let now = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ");
    match format {
        LogFormat::Text => format!("{now} ERROR oncebox: {}\n", printable(text)),
        LogFormat::Json => {
            let event =
                json!({"timestamp": now.to_string(), "level": "ERROR", "message": text, "target": "oncebox"});
            format!("{}\n", printable_json(&event.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line_of_the_log() {
        let now = jiff::Timestamp::from_second(1_767_225_600).expect("a time");
        let text = line(LogFormat::Text, now, "panic: id a\u{1b}[2J\nb");
        assert_eq!(text, "2026-01-01T00:00:00.000000Z ERROR oncebox: panic: id a\\u{1b}[2J\\nb\n");
        let json: serde_json::Value =
            serde_json::from_str(&line(LogFormat::Json, now, "panic: a\nb")).expect("JSON");
        assert_eq!(json["message"], "panic: a\nb");
        assert_eq!(json["timestamp"], "2026-01-01T00:00:00.000000Z");
    }
}
