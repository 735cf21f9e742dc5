//! The settings that change while the daemon runs: what SIGHUP takes from the file at once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use oncebox_config::{Config, changed_keys};
use oncebox_core::inbox::RetryPolicy;
use oncebox_core::live::Live;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::Retention;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::exit::Failure;
use crate::load;
use crate::logging::LogLevel;
use crate::stores;

/// So many problems of a file, or keys, are logged.
const SHOWN: usize = 20;

/// What applies at once.
#[derive(Clone)]
pub(super) struct LiveSettings {
    level: LogLevel,
    /// How often each consumer says what it has done.
    pub(super) summary: Live<Duration>,
    pub(super) retention: Live<Vec<Retention>>,
    retry: Vec<(ConsumerName, Live<RetryPolicy>)>,
}

impl LiveSettings {
    pub(super) fn new(config: &Config, level: LogLevel) -> Self {
        level.follow(&config.log.level);
        let retry = |inbox: &oncebox_config::InboxConfig| (inbox.consumer.clone(), Live::new(inbox.retry));
        Self {
            level,
            summary: Live::new(config.log.summary),
            retention: Live::new(stores::retention(&config.inboxes)),
            retry: config.inboxes.iter().map(retry).collect(),
        }
    }

    /// How often the failing messages of this consumer are tried.
    pub(super) fn retry(&self, consumer: &ConsumerName) -> Option<Live<RetryPolicy>> {
        self.retry.iter().find(|(name, _)| name == consumer).map(|(_, retry)| retry.clone())
    }

    /// From now on it is as this configuration says.
    fn apply(&self, config: &Config) {
        self.level.follow(&config.log.level);
        self.summary.set(config.log.summary);
        self.retention.set(stores::retention(&config.inboxes));
        for inbox in &config.inboxes {
            if let Some(retry) = self.retry(&inbox.consumer) {
                retry.set(inbox.retry);
            }
        }
    }
}

/// The file, and what of it is in use.
pub(super) struct Reloading {
    file: PathBuf,
    text: String,
    config: Config,
    settings: LiveSettings,
}

/// What a reload has done.
#[derive(Debug, PartialEq, Eq)]
struct Reloaded {
    applied: Vec<String>,
    want_restart: Vec<String>,
}

impl Reloading {
    pub(super) fn new(file: &Path, text: String, config: Config, settings: LiveSettings) -> Self {
        Self { file: file.to_owned(), text, config, settings }
    }

    /// Reads the file again at every signal, until `stop`.
    pub(super) async fn run(mut self, mut signal: Signal, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                told = signal.recv() => if told.is_none() { return },
            }
            let file = self.file.display().to_string();
            match self.reload() {
                Ok(Reloaded { applied, want_restart }) => {
                    info!(file, applied = shown(&applied), "the configuration was read again");
                    if !want_restart.is_empty() {
                        warn!(
                            keys = shown(&want_restart),
                            "changed in the file, but not applied before a restart"
                        );
                    }
                }
                Err(failure) => {
                    let problems: Vec<&str> = failure.text.lines().collect();
                    for problem in problems.iter().take(SHOWN) {
                        error!(problem, "the configuration is not taken over; the old settings stay");
                    }
                    if let Some(more) = problems.len().checked_sub(SHOWN).filter(|more| *more > 0) {
                        error!(more, "and more problems: see `oncebox check`");
                    }
                }
            }
        }
    }

    fn reload(&mut self) -> Result<Reloaded, Failure> {
        let (config, text) = load::config_and_text(&self.file)?;
        let reloaded = self.compare(&config, &text);
        // Consumers that were not there at the start are not there now.
        let mut running = self.config.clone();
        running.log = config.log.clone();
        for inbox in &mut running.inboxes {
            if let Some(new) = config.inboxes.iter().find(|new| new.consumer == inbox.consumer) {
                (inbox.retry, inbox.retention) = (new.retry, new.retention);
            }
        }
        self.settings.apply(&running);
        self.config = running;
        Ok(reloaded)
    }

    /// What is applied now, and what differs from what has run since the start.
    fn compare(&self, config: &Config, text: &str) -> Reloaded {
        let mut applied = Vec::new();
        if config.log != self.config.log {
            applied.push("log".to_owned());
        }
        for (old, new) in pairs(&self.config, config) {
            if old.retry != new.retry {
                applied.push(format!("inbox[{}].retry", new.consumer));
            }
            if old.retention != new.retention {
                applied.push(format!("inbox[{}].retention", new.consumer));
            }
        }
        let mut as_started = config.clone();
        as_started.log = self.config.log.clone();
        for inbox in &mut as_started.inboxes {
            if let Some(old) = self.config.inboxes.iter().find(|old| old.consumer == inbox.consumer) {
                (inbox.retry, inbox.retention) = (old.retry, old.retention);
            }
        }
        // Keys that say the same in other words are no change.
        let want_restart = if as_started == self.config {
            Vec::new()
        } else {
            changed_keys(&self.text, text).into_iter().filter(|key| !is_live(key)).collect()
        };
        Reloaded { applied, want_restart }
    }
}

fn pairs<'a>(
    old: &'a Config,
    new: &'a Config,
) -> impl Iterator<Item = (&'a oncebox_config::InboxConfig, &'a oncebox_config::InboxConfig)> {
    new.inboxes.iter().filter_map(|new| {
        let old = old.inboxes.iter().find(|old| old.consumer == new.consumer)?;
        Some((old, new))
    })
}

/// Whether a changed key is one of those that apply at once.
fn is_live(key: &str) -> bool {
    let of_an_inbox = |key: &str| {
        key.strip_prefix("inbox[")
            .and_then(|rest| rest.rsplit_once("]."))
            .is_some_and(|(_, key)| key == "retention" || key == "retry" || key.starts_with("retry."))
    };
    key == "log" || key.starts_with("log.") || of_an_inbox(key)
}

fn shown(keys: &[String]) -> String {
    let more = keys.len().saturating_sub(SHOWN);
    match (keys, more) {
        ([], _) => "nothing".to_owned(),
        (_, 0) => keys.join(", "),
        _ => format!("{} and {more} more", keys[..SHOWN].join(", ")),
    }
}
