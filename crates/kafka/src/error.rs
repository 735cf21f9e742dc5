//! What can go wrong between us and a broker, in words that help.

use oncebox_core::secret::Secrets;
use rdkafka::error::KafkaError;

/// Why something with Kafka did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A property that oncebox must set itself.
    #[error("the Kafka property {name} cannot be set: {why}; {fix}")]
    ReservedProperty {
        /// The property.
        name: String,
        /// What depends on it.
        why: &'static str,
        /// What to do.
        fix: String,
    },
    /// librdkafka refuses the configuration.
    #[error("the Kafka configuration is refused: {0}")]
    Configuration(String),
    /// No topic is named.
    #[error("no topic is given to read from")]
    NoTopics,
    /// The client cannot go on; a new one is needed.
    #[error("the Kafka client cannot go on: {0}")]
    Fatal(String),
    /// Events go to a topic that is not there.
    #[error("topic {0} does not exist: create it, or correct the topic of the events; they wait until then")]
    UnknownTopic(String),
    /// A batch was not published, or not all of it.
    #[error(
        "{missing} of {events} events to {topic} were not confirmed: {reason}; they will be published again"
    )]
    NotPublished {
        /// Where they go.
        topic: String,
        /// How many of them are not known to be at the broker.
        missing: usize,
        /// How many there were.
        events: usize,
        /// Why.
        reason: String,
    },
    /// A request to the cluster failed.
    #[error("{what}: {reason}")]
    Request {
        /// What was asked.
        what: String,
        /// Why there is no answer.
        reason: String,
    },
}

impl Error {
    /// librdkafka quotes the offending value in its message: secrets are taken out of it.
    pub(crate) fn configuration(error: &KafkaError, secrets: &Secrets) -> Self {
        let text = match error {
            KafkaError::ClientConfig(_, description, key, _) => format!("{key}: {description}"),
            other => other.to_string(),
        };
        Self::Configuration(secrets.removed_from(&text))
    }

    pub(crate) fn request(what: impl Into<String>, error: &KafkaError) -> Self {
        Self::Request { what: what.into(), reason: error.to_string() }
    }
}
