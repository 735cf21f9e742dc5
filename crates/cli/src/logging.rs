//! Structured logs on stderr; stdout is for data.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::args::{Command, LogFormat};

/// Installs the subscriber. Short commands only warn: their answer is the output.
pub(crate) fn init(format: LogFormat, filter: Option<&str>, command: &Command) -> Result<(), String> {
    let default = match command {
        Command::Run => "info,sqlx=warn",
        _ => "warn",
    };
    let filter = EnvFilter::try_new(filter.unwrap_or(default)).map_err(|e| format!("--log: {e}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
