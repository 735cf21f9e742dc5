//! Structured logs on stderr; stdout is for data.
//!
//! A lost log line never stops work: whoever read it may be gone, the disk behind it may be full. And nothing in a line is
//! obeyed by the terminal that shows it, wherever the text came from.

use std::io::{self, IsTerminal, Write};

use oncebox_core::printable::{printable, printable_json};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::args::{Command, LogFormat};

/// What is logged from now on, if the command line leaves that to the file.
#[derive(Clone)]
pub(crate) struct LogLevel {
    handle: reload::Handle<Targets, Registry>,
    /// `--log` or its variable has the last word.
    fixed: bool,
}

impl LogLevel {
    /// Follows `log.level`. False if the command line has said something else.
    pub(crate) fn follow(&self, level: &str) -> bool {
        // The reader of the file has refused what cannot be read.
        if !self.fixed
            && let Ok(targets) = targets(&of_the_file(level))
        {
            // It fails only after the subscriber is gone, and nobody logs then.
            self.handle.reload(targets).ok();
        }
        !self.fixed
    }
}

/// What a level of the file means: sqlx would log every statement.
fn of_the_file(level: &str) -> String {
    match level.trim() {
        level @ ("info" | "debug" | "trace") => format!("{level},sqlx=warn"),
        filter => filter.to_owned(),
    }
}

/// What is wrong with a filter, if anything is.
pub(crate) fn check(filter: &str) -> Result<(), String> {
    targets(filter).map(|_| ())
}

/// Installs the subscriber. Short commands only warn: their answer is the output.
pub(crate) fn init(format: LogFormat, filter: Option<&str>, command: &Command) -> Result<LogLevel, String> {
    let default = match command {
        Command::Run => of_the_file("info"),
        _ => "warn".to_owned(),
    };
    let targets = match filter {
        Some(filter) => targets(filter).map_err(|e| format!("--log: {e}"))?,
        None => targets(&default)?,
    };
    let (targets, handle) = reload::Layer::new(targets);
    let colours = format == LogFormat::Text && io::stderr().is_terminal();
    let lines = fmt::layer()
        .with_writer(Lines { format, colours })
        // The writer gives colours to the level and to nothing else.
        .with_ansi(false)
        // It would report a failed write with `eprintln!`, which panics where stderr itself has failed.
        .log_internal_errors(false);
    let logs = tracing_subscriber::registry().with(targets);
    match format {
        LogFormat::Text => logs.with(lines).init(),
        LogFormat::Json => logs.with(lines.json().flatten_event(true)).init(),
    }
    Ok(LogLevel { handle, fixed: filter.is_some() })
}

/// What a filter asks for. `Targets` takes nearly any text for a target; what can never match is a mistake.
fn targets(filter: &str) -> Result<Targets, String> {
    let parts: Vec<&str> = filter.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let of_a_target = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
    for part in &parts {
        let (target, level) = part.split_once('=').unwrap_or((part, "trace"));
        if target.is_empty() || level.is_empty() || !target.chars().all(of_a_target) {
            return Err(format!(
                "{part:?} is neither a level nor TARGET=LEVEL, such as \"info,oncebox_kafka=debug\""
            ));
        }
    }
    parts.join(",").parse().map_err(|e| format!("{e}"))
}

/// Makes a writer for each event.
#[derive(Clone, Copy)]
struct Lines {
    format: LogFormat,
    colours: bool,
}

/// Writes one event, which arrives whole, as one line.
struct Line {
    format: LogFormat,
    coloured: Option<Level>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { format: self.format, coloured: None }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line { format: self.format, coloured: self.colours.then_some(*meta.level()) }
    }
}

impl Line {
    fn text(&self, event: &[u8]) -> String {
        let event = String::from_utf8_lossy(event);
        let event = event.trim_end_matches('\n');
        let mut line = match self.format {
            LogFormat::Text => printable(event).into_owned(),
            LogFormat::Json => printable_json(event).into_owned(),
        };
        if let Some(level) = self.coloured {
            // Only the time stands before it.
            line = line.replacen(level.as_str(), &coloured(level), 1);
        }
        line.push('\n');
        line
    }
}

fn coloured(level: Level) -> String {
    let colour = match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    };
    format!("\u{1b}[{colour}m{level}\u{1b}[0m")
}

impl Write for Line {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // Nobody can be told that the line is lost.
        io::stderr().write_all(self.text(event).as_bytes()).ok();
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "2026-01-01T00:00:00Z  WARN oncebox: id=a\u{1b}[2J\nERROR forged\u{9b}\n";

    #[test]
    fn a_filter_that_can_never_match_is_refused() {
        for right in
            ["info", " info", "info, sqlx=warn", "oncebox_core::inbox=debug,", "off", "warn,rdkafka=error"]
        {
            assert!(targets(right).is_ok(), "{right:?}");
        }
        for wrong in ["[span]=debug", "(x", "oncebox=", "=info", "a b=info", "oncebox=loud", "a=b=c"] {
            assert!(targets(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_event_is_one_line_and_nothing_in_it_is_obeyed() {
        let line = Line { format: LogFormat::Text, coloured: None };
        assert_eq!(
            line.text(HOSTILE.as_bytes()),
            "2026-01-01T00:00:00Z  WARN oncebox: id=a\\u{1b}[2J\\nERROR forged\\u{9b}\n"
        );
    }

    #[test]
    fn only_the_level_has_a_colour() {
        let line = Line { format: LogFormat::Text, coloured: Some(Level::WARN) };
        let text = line.text(HOSTILE.as_bytes());
        assert!(text.contains("Z  \u{1b}[33mWARN\u{1b}[0m oncebox"), "{text:?}");
        assert_eq!(text.matches('\u{1b}').count(), 2, "{text:?}");
    }

    #[test]
    fn a_line_of_json_stays_json() {
        let line = Line { format: LogFormat::Json, coloured: None };
        let event = serde_json::json!({"id": "a\u{9b}31m\u{202e}"});
        let text = line.text(format!("{event}\n").as_bytes());
        assert_eq!(text, "{\"id\":\"a\\u009b31m\\u202e\"}\n");
    }
}
