//! What can go wrong between us and a broker, in words that help.

use oncebox_core::secret::Secrets;
use rdkafka::error::KafkaError;

/// Why something with Kafka did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A property that is missing or may not be what it is.
    #[error("the Kafka property {name} cannot be used: {why}; {fix}")]
    Property {
        /// The property.
        name: String,
        /// What is wrong.
        why: String,
        /// What to do.
        fix: String,
    },
    /// librdkafka refuses the configuration.
    #[error("the Kafka configuration is refused: {0}")]
    Configuration(String),
    /// There is no token to sign in with (`sasl.mechanism = OAUTHBEARER`).
    #[error("{0}")]
    NoToken(String),
    /// No topic is named.
    #[error("no topic is given to read from")]
    NoTopics,
    /// The client cannot go on; a new one is needed.
    #[error("the Kafka client cannot go on: {0}")]
    Fatal(String),
    /// Another process has come with the same `group.instance.id`.
    #[error(
        "another process has joined the group with the same group.instance.id: give each process its own, or end one of \
         them. This one stands still and tries again every five minutes"
    )]
    Fenced,
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
    /// Whether another try is of no use until somebody has changed the configuration.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::Property { .. } | Self::Configuration(_) | Self::NoTopics)
    }

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
