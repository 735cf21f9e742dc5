//! The context of clients that only ask.

use std::sync::{Mutex, PoisonError};

use oncebox_core::secret::Secrets;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::hints::with_hint;
use crate::logging::log;
use crate::oauth::Tokens;
use crate::settings::Kafka;

/// Whose errors are returned, not logged.
pub(crate) struct Quiet {
    secrets: Secrets,
    pub(crate) tokens: Tokens,
    trouble: Mutex<Option<(RDKafkaErrorCode, String)>>,
}

impl Quiet {
    pub(crate) fn of(kafka: &Kafka) -> Self {
        Self { secrets: kafka.secrets(), tokens: kafka.tokens(), trouble: Mutex::default() }
    }

    /// What librdkafka complained about last: a question that gets no answer does not say why.
    pub(crate) fn trouble(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientContext for Quiet {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, text: &str) {
        log(&self.secrets, RDKafkaLogLevel::Debug, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log(&self.secrets, RDKafkaLogLevel::Debug, &error.to_string(), reason);
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        // It follows from what was said before.
        if code != RDKafkaErrorCode::AllBrokersDown {
            let text = with_hint(code, self.secrets.removed_from(reason), &self.tokens);
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some((code, text));
        }
    }
}

impl ConsumerContext for Quiet {}
