//! Where an inbox reads from: Kafka topics, a RabbitMQ queue, or HTTP requests.

mod http;
mod kafka;
mod rabbitmq;

use oncebox_core::inbox::Selector;

use super::inbox::Taken;
use super::kafka::Clusters;
use super::reader::Section;
pub(super) use http::Reach;
pub use http::{HandshakeConfig, HttpInbox, HttpMode, SecretsConfig, VerifyConfig, VerifyScheme};
pub use kafka::{KafkaInbox, RetentionCheck};
pub use rabbitmq::RabbitmqInbox;

/// Where an inbox reads from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceConfig {
    /// `topics`, from `[kafka]`.
    Kafka(KafkaInbox),
    /// `queue`, from `[rabbitmq]`.
    Rabbitmq(RabbitmqInbox),
    /// `http`, on the address of `[http]`.
    Http(HttpInbox),
}

impl SourceConfig {
    /// The names of what is read: the topics, the queue, or the path.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Kafka(kafka) => kafka.topics.iter().map(String::as_str).collect(),
            Self::Rabbitmq(rabbitmq) => vec![&rabbitmq.queue],
            Self::Http(http) => vec![&http.path],
        }
    }

    /// Its half that reads Kafka topics, if it does.
    #[must_use]
    pub fn kafka(&self) -> Option<&KafkaInbox> {
        match self {
            Self::Kafka(kafka) => Some(kafka),
            Self::Rabbitmq(_) | Self::Http(_) => None,
        }
    }

    /// Whether whoever sends a message waits until it is applied, and hears of it.
    #[must_use]
    pub fn sender_waits(&self) -> bool {
        matches!(self, Self::Http(http) if http.mode == HttpMode::Apply)
    }

    /// Why this selector cannot give the id of a message that is read here, and what to do; `None` if it can.
    pub(super) fn refuses(&self, id: &Selector) -> Option<(&'static str, &'static str)> {
        let use_what_is_there = "use what the sender says, as in header:NAME or json:/POINTER";
        match (self, id) {
            (Self::Rabbitmq(_) | Self::Http(_), Selector::Coordinates) => Some((
                "only a topic has coordinates: here a message that comes again has another number, so no copy could be told",
                use_what_is_there,
            )),
            (Self::Kafka(_) | Self::Http(_), Selector::Property(_)) => {
                Some(("only messages of RabbitMQ have properties", use_what_is_there))
            }
            (Self::Kafka(_) | Self::Rabbitmq(_), Selector::Path(_)) => {
                Some(("only requests have a path", use_what_is_there))
            }
            _ => None,
        }
    }
}

/// What the other sections of the file offer to read from.
pub(super) struct Offered<'o, 'c, 'a> {
    pub(super) kafka: &'o mut Clusters<'c, 'a>,
    pub(super) rabbitmq: bool,
    pub(super) http: Reach,
}

/// The keys that say where an inbox reads from. `consumer` is the default of the group.
pub(super) fn read<'c, 'a>(
    section: &mut Section<'c, 'a>,
    consumer: Option<&str>,
    offered: &mut Offered<'_, 'c, 'a>,
    taken: &mut Taken<'c, 'a>,
) -> Option<SourceConfig> {
    let (topics, queue, http) =
        (section.optional("topics"), section.optional("queue"), section.optional("http"));
    let given = [topics.as_ref(), queue.as_ref(), http.as_ref()];
    if let Some(second) = given.into_iter().flatten().nth(1) {
        second.report(
            "an inbox reads topics, a queue or requests",
            "keep one of them, and make another inbox for the other",
        );
        return None;
    }
    // First: what belongs to another source is said, whatever else is wrong.
    let (of_kafka, of_rabbitmq) = (kafka::KEYS, rabbitmq::KEYS);
    match (&topics, &queue, &http) {
        (_, Some(_), _) => refuse(section, of_kafka, "is for topics of Kafka"),
        (_, _, Some(_)) => {
            refuse(section, of_kafka, "is for topics of Kafka");
            refuse(
                section,
                of_rabbitmq,
                "is for a queue; for requests it stands under [inbox.http], if at all",
            );
        }
        _ => refuse(section, of_rabbitmq, "is for a queue of RabbitMQ"),
    }
    match (topics, queue, http) {
        (_, Some(queue), _) => {
            rabbitmq::read(section, &queue, offered.rabbitmq, &mut taken.queues).map(SourceConfig::Rabbitmq)
        }
        (_, _, Some(http)) => {
            let http = http::read(http, offered.http, taken)?;
            if http.mode == HttpMode::Apply {
                let why = "is for messages whose sender is gone; who sends a request hears of it";
                refuse(section, &["on_failure"], why);
            }
            Some(SourceConfig::Http(http))
        }
        (Some(topics), ..) => {
            kafka::read(section, topics, consumer, offered.kafka, &mut taken.groups).map(SourceConfig::Kafka)
        }
        (None, None, None) => {
            section.report_key("topics", "it is missing", kafka::TOPICS_FIX);
            None
        }
    }
}

/// Reports the keys that another source has.
fn refuse(section: &mut Section<'_, '_>, keys: &[&'static str], why: &str) {
    for key in keys {
        if let Some(entry) = section.optional(key) {
            entry.report(format!("`{key}` {why}"), "remove it");
        }
    }
}
