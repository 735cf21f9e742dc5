//! What librdkafka calls back with while it is polled, kept until the poll returns.
//!
//! The callbacks run on the polling thread, inside `poll`. They only take notes; the reader acts on them right after the
//! poll, on the same thread, where it holds everything it needs. That is as good as acting inside the callback: librdkafka
//! itself stops fetching from the moment it wants to rebalance until it is answered by assign or unassign, `poll` returns
//! as soon as it has delivered a rebalance, and the reader answers it before it polls again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use oncebox_core::secret::Secrets;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;
use tracing::{debug, warn};

use super::assignment::{answer_assign, answer_revoke};
use super::statistics::Statistics;
use crate::hints::with_hint;
use crate::logging::log;
use crate::oauth::Tokens;
use crate::settings::Kafka;

/// Something to act on after the poll.
pub(super) enum Notice {
    /// These partitions are ours now. Must be answered by an assign.
    Assigned(TopicPartitionList),
    /// These partitions go to someone else. Must be answered by an unassign.
    Revoked {
        partitions: TopicPartitionList,
        /// They are gone already: the group did without us, someone else may own them by now.
        lost: bool,
    },
    /// Something is wrong with a broker, a topic, a partition.
    Trouble(RDKafkaErrorCode, String),
    /// Broker states, fetch states, watermarks.
    Statistics(Box<Statistics>),
}

/// The context of our consumer.
#[derive(Debug)]
pub(super) struct Callbacks {
    notices: Mutex<VecDeque<Notice>>,
    closing: AtomicBool,
    /// The group has taken everything back since.
    parted: AtomicBool,
    served: AtomicU64,
    secrets: Secrets,
    pub(super) tokens: Tokens,
}

impl std::fmt::Debug for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Assigned(partitions) => write!(f, "Assigned({partitions:?})"),
            Self::Revoked { partitions, lost } => write!(f, "Revoked({partitions:?}, lost: {lost})"),
            Self::Trouble(code, reason) => write!(f, "Trouble({code:?}, {reason})"),
            Self::Statistics(_) => f.write_str("Statistics"),
        }
    }
}

impl Callbacks {
    pub(super) fn of(kafka: &Kafka) -> Self {
        Self {
            notices: Mutex::default(),
            closing: AtomicBool::new(false),
            parted: AtomicBool::new(false),
            served: AtomicU64::new(0),
            secrets: kafka.secrets(),
            tokens: kafka.tokens(),
        }
    }

    /// The oldest notice not yet acted on.
    pub(super) fn next(&self) -> Option<Notice> {
        self.notices().pop_front()
    }

    /// How many callbacks there were so far.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// From now on nobody acts on notices: the consumer is being dropped. Dropping polls until the group is left, and
    /// would do so for ever if a rebalance were noted and never answered.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Whether the group has taken everything back since [`Callbacks::close`].
    pub(super) fn has_parted(&self) -> bool {
        self.parted.load(Ordering::Relaxed)
    }

    fn note(&self, notice: Notice) {
        self.served.fetch_add(1, Ordering::Relaxed);
        if !self.closing.load(Ordering::Relaxed) {
            self.notices().push_back(notice);
        }
    }

    fn notices(&self) -> std::sync::MutexGuard<'_, VecDeque<Notice>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConsumerContext for Callbacks {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        code: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let assigned = code == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Relaxed) {
            let answered =
                if assigned { answer_assign(consumer) } else { answer_revoke(consumer, partitions) };
            if let Err(e) = answered {
                debug!(error = %e, "the last rebalance was not answered");
            }
            self.parted.fetch_or(!assigned, Ordering::Relaxed);
        } else if assigned {
            self.note(Notice::Assigned(partitions.clone()));
        } else {
            // The answer resets the flag, so it is read now.
            self.note(Notice::Revoked { partitions: partitions.clone(), lost: consumer.assignment_lost() });
        }
    }
}

impl ClientContext for Callbacks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.served.fetch_add(1, Ordering::Relaxed);
        log(&self.secrets, level, facility, text);
    }

    /// Not parsed by the binding, which would keep everything about every partition.
    fn stats_raw(&self, statistics: &[u8]) {
        match Statistics::parse(statistics) {
            Ok(statistics) => self.note(Notice::Statistics(Box::new(statistics))),
            Err(error) => warn!(%error, "librdkafka's statistics cannot be read"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        self.note(Notice::Trouble(code, with_hint(code, self.secrets.removed_from(reason), &self.tokens)));
    }
}
