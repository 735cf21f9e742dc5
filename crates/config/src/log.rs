//! `[log]`: what `oncebox run` says of itself.

use std::time::Duration;

use super::bounds::duration;
use super::reader::Section;

/// `[log]`: what `oncebox run` writes to stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// `level`: a level, or a filter such as `info,oncebox_kafka=debug`. Default `info`. `--log` wins.
    pub level: String,
    /// `summary`: how often each consumer says what it has done; `0s` for never. Default `1m`.
    pub summary: Duration,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".to_owned(), summary: Duration::from_secs(60) }
    }
}

pub(super) fn read(mut section: Section<'_, '_>) -> LogConfig {
    let default = LogConfig::default();
    let level = section.or("level", default.level, |entry| {
        let level = entry.filled_text()?;
        if let Err(why) = (entry.surroundings().check_log)(&level) {
            entry.report(
                why,
                "write error, warn, info, debug or trace, or a filter: \"info,oncebox_kafka=debug\"",
            );
            return None;
        }
        Some(level)
    });
    let summary = section.or("summary", default.summary, |entry| {
        let summary = duration(&entry, Duration::ZERO)?;
        if !summary.is_zero() && summary < Duration::from_secs(1) {
            entry.report("this is too often", "write a second or more, or \"0s\" for never");
            return None;
        }
        Some(summary)
    });
    section.finish();
    LogConfig { level, summary }
}
