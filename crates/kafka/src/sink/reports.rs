//! What librdkafka calls back with: the delivery reports of the run under way, and trouble.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oncebox_core::failpoint::failpoint;
use oncebox_core::secret::Secrets;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{ProducerContext, PurgeConfig};
use tokio::sync::Notify;

use super::trouble::Trouble;
use crate::hints::with_hint;
use crate::logging::log;
use crate::oauth::Tokens;
use crate::settings::Kafka;

/// How long nothing may be confirmed before a warning.
const QUIET_BEFORE_WARNING: Duration = Duration::from_secs(10);

/// How often the queue of a producer that has stopped is purged.
const PURGE_INTERVAL: Duration = Duration::from_millis(50);

/// How long what is purged may take to be reported: a thread of librdkafka may be busy looking up the name of a broker.
const PURGE_TIMEOUT: Duration = Duration::from_secs(5);

/// What became of one event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The broker has it.
    Delivered,
    /// It cannot be sent at all; it has not reached the broker.
    Refused(RDKafkaErrorCode),
    /// It was not confirmed; the broker may have it.
    Failed(RDKafkaErrorCode),
}

/// The context of a producer. It has one run at a time, so the place in the run is all that a report must carry.
pub(super) struct Reports {
    run: Mutex<Run>,
    news: Notify,
    trouble: Arc<Trouble>,
    secrets: Secrets,
    tokens: Tokens,
    /// How long nothing may be reported before a run is given up.
    stall: Duration,
}

struct Run {
    reports: Vec<Report>,
    left: usize,
    /// Something failed: the producer must not be used for another run.
    spent: bool,
    stopped_by: Option<String>,
    /// It was given up because nothing was reported any more.
    stalled: bool,
    /// When there was something new last.
    last_news: Instant,
}

impl Run {
    fn none() -> Self {
        let last_news = Instant::now();
        Self { reports: Vec::new(), left: 0, spent: false, stopped_by: None, stalled: false, last_news }
    }
}

impl Reports {
    pub(super) fn new(kafka: &Kafka, trouble: Arc<Trouble>, stall: Duration) -> Self {
        Self {
            run: Mutex::new(Run::none()),
            news: Notify::new(),
            trouble,
            secrets: kafka.secrets(),
            tokens: kafka.tokens(),
            stall,
        }
    }

    /// What the producer signs in with.
    pub(super) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    pub(super) fn begin(&self, events: usize) {
        let mut run = self.run();
        run.reports.clear();
        run.reports.resize(events, Report::Failed(RDKafkaErrorCode::InProgress));
        run.left = events;
        run.last_news = Instant::now();
    }

    pub(super) fn note(&self, at: usize, report: Report) {
        let mut run = self.run();
        if run.left == run.reports.len() {
            failpoint("relay-before-report");
        }
        let failed_first = matches!(report, Report::Failed(_)) && !run.spent;
        run.spent |= failed_first;
        run.reports[at] = report;
        run.left -= 1;
        run.last_news = Instant::now();
        if run.left == 0 || failed_first {
            drop(run);
            self.news.notify_one();
        }
    }

    /// Waits until all events of the run are reported or the run has stalled. Calls `purge` now and then once something has
    /// failed.
    pub(super) async fn all(&self, topic: &str, purge: impl Fn(PurgeConfig)) -> Vec<Report> {
        loop {
            let stalled = self.give_up_if_stalled();
            let (left, spent, quiet) = self.progress();
            if left == 0 || (stalled && quiet >= PURGE_TIMEOUT) {
                break;
            }
            // A producer that has stopped purges its queue, but only once: what is put there a moment later, or comes back
            // from a broken connection, would stay there. What is in flight is worth waiting for, up to a point.
            if spent {
                let queue = PurgeConfig::default().queue();
                purge(if stalled { queue.inflight() } else { queue });
            } else if quiet >= QUIET_BEFORE_WARNING {
                self.trouble.warn_waiting(topic, left);
            }
            let patience = if spent {
                PURGE_INTERVAL
            } else {
                QUIET_BEFORE_WARNING.min(self.stall.saturating_sub(quiet))
            };
            tokio::time::timeout(patience, self.news.notified()).await.ok();
        }
        let run = self.run();
        if !run.spent {
            self.trouble.clear();
        }
        // Not taken out: of a run that was given up there may be reports yet.
        run.reports.clone()
    }

    /// Gives the run up if nothing was reported for too long. Says whether it is given up.
    pub(super) fn give_up_if_stalled(&self) -> bool {
        let mut run = self.run();
        if !run.stalled && run.left > 0 && run.last_news.elapsed() >= self.stall {
            run.stalled = true;
            run.spent = true;
            run.last_news = Instant::now();
        }
        run.stalled
    }

    /// How many reports are missing, whether something failed, and for how long there was nothing new.
    fn progress(&self) -> (usize, bool, Duration) {
        let run = self.run();
        (run.left, run.spent, run.last_news.elapsed())
    }

    /// Whether all that was sent is reported, and nothing failed.
    pub(super) fn is_clean(&self) -> bool {
        let run = self.run();
        run.left == 0 && !run.spent
    }

    pub(super) fn is_spent(&self) -> bool {
        self.run().spent
    }

    /// Whether the run was given up because nothing was reported any more.
    pub(super) fn has_stalled(&self) -> bool {
        self.run().stalled
    }

    /// Why librdkafka has stopped the producer.
    pub(super) fn stopped_by(&self) -> Option<String> {
        self.run().stopped_by.clone()
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, at: usize) {
        let report = match result {
            Ok(_) => Report::Delivered,
            Err((error, _)) => {
                Report::Failed(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown))
            }
        };
        self.note(at, report);
    }
}

impl ClientContext for Reports {
    /// Lost connections and stopped producers are errors to librdkafka. We say ourselves what they mean for the events.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        let known = matches!(facility, "FAIL" | "ERROR" | "FATAL" | "PARTCNT");
        log(&self.secrets, if known { RDKafkaLogLevel::Debug } else { level }, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        let reason = with_hint(code, self.secrets.removed_from(reason), &self.tokens);
        if code == RDKafkaErrorCode::Fatal {
            let mut run = self.run();
            run.spent = true;
            run.stopped_by = Some(reason);
            drop(run);
            self.news.notify_one();
        } else {
            self.trouble.note(reason);
        }
    }
}
