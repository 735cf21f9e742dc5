//! The context of clients that only ask.

use oncebox_core::secret::Secrets;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

use crate::logging::log;

/// Whose errors are returned, not logged.
pub(crate) struct Quiet(pub(crate) Secrets);

impl ClientContext for Quiet {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, text: &str) {
        log(&self.0, RDKafkaLogLevel::Debug, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log(&self.0, RDKafkaLogLevel::Debug, &error.to_string(), reason);
    }
}

impl ConsumerContext for Quiet {}
