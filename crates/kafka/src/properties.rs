//! The librdkafka properties that follow from what oncebox promises. One table of properties serves the source and the
//! sink; librdkafka itself ignores those that are for the other one.

use std::collections::BTreeMap;

use oncebox_core::secret::Secrets;
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use crate::oauth::Oidc;
use crate::sign_in;

/// Why a property may not be set, or not to this value. Never says the value of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedProperty {
    /// What is wrong with it, or what depends on it.
    pub why: String,
    /// What to do.
    pub fix: String,
    /// The setting of oncebox that serves the purpose, if there is one: `brokers`, `group` or `start`.
    pub instead: Option<&'static str>,
}

impl RefusedProperty {
    pub(crate) fn new(why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { why: why.into(), fix: fix.into(), instead: None }
    }
}

const BROKERS: &str = "the brokers are named once, for every client";
const COMMITS: &str = "offsets are committed after the database has committed";
const ACKS: &str = "an event is published when all replicas in sync have it";
const RELAY_DECIDES: &str = "an event that was given up could have been written; the relay decides";
const ORDER: &str = "the order of events depends on it";

/// What we promise depends on these, so nobody may set them. Each with the reason and with the setting to use instead.
const RESERVED: [(&str, &str, Option<&str>); 28] = [
    ("bootstrap.servers", BROKERS, Some("brokers")),
    ("metadata.broker.list", BROKERS, Some("brokers")),
    ("group.id", "each consumer has a group of its own", Some("group")),
    ("group.protocol", "only the classic protocol is supported yet", None),
    ("enable.auto.commit", COMMITS, None),
    ("auto.commit.enable", COMMITS, None),
    ("auto.commit.interval.ms", COMMITS, None),
    ("enable.auto.offset.store", COMMITS, None),
    ("auto.offset.reset", "a gap must stop the partition", Some("start")),
    ("isolation.level", "messages of aborted transactions must not be applied", None),
    ("check.crcs", "a damaged message must not be applied", None),
    ("enable.partition.eof", "it is used by nobody and costs an event per partition", None),
    ("allow.auto.create.topics", "a misspelt topic must be an error, not a new topic", None),
    ("log.queue", "logs are read from a queue", None),
    ("enable.idempotence", "without it a retry could change the order of events", None),
    (
        "enable.gapless.guarantee",
        "an event that failed must not be overtaken by the next one of its key",
        None,
    ),
    ("acks", ACKS, None),
    ("request.required.acks", ACKS, None),
    ("transactional.id", "events are published at least once, and told apart by their id", None),
    ("message.timeout.ms", RELAY_DECIDES, None),
    ("delivery.timeout.ms", RELAY_DECIDES, None),
    ("retries", RELAY_DECIDES, None),
    ("message.send.max.retries", RELAY_DECIDES, None),
    ("max.in.flight", ORDER, None),
    ("max.in.flight.requests.per.connection", ORDER, None),
    ("queuing.strategy", ORDER, None),
    (
        "queue.buffering.backpressure.threshold",
        "an idempotent producer takes no other value than its default",
        None,
    ),
    ("delivery.report.only.error", "an event is published when its delivery is reported", None),
];

/// The properties that oncebox sets itself, and nobody else may.
pub fn reserved_properties() -> impl Iterator<Item = &'static str> {
    RESERVED.iter().map(|(name, ..)| *name)
}

/// Why a property may not have this value, if it may not: it is oncebox's own, it asks for what is not supported, or librdkafka
/// does not know it.
#[must_use]
pub fn refused_property(name: &str, value: &str) -> Option<RefusedProperty> {
    if let Some((_, why, instead)) = RESERVED.iter().find(|(reserved, ..)| *reserved == name) {
        let why = format!("oncebox controls this property itself: {why}");
        let fix = instead.map_or_else(|| "remove it".to_owned(), |setting| format!("use `{setting}`"));
        return Some(RefusedProperty { why, fix, instead: *instead });
    }
    match (name, value) {
        ("statistics.interval.ms", "0") => {
            let why = "the statistics tell whether brokers can be reached and how far behind we are";
            return Some(RefusedProperty::new(why, "remove it"));
        }
        ("topic.metadata.refresh.interval.ms", "-1" | "0") => {
            let why = "new topics and new partitions would never be found";
            return Some(RefusedProperty::new(why, "write how often to look, in milliseconds"));
        }
        _ => {}
    }
    sign_in::refused(name, value).or_else(|| refused_by_librdkafka(name, value))
}

/// What is missing in a table of properties, or does not go together: the property, and what is wrong.
#[must_use]
pub fn refused_together(properties: &BTreeMap<String, String>) -> Option<(&'static str, RefusedProperty)> {
    let (name, why, fix) = sign_in::incomplete(properties)?;
    Some((name, RefusedProperty::new(why, fix)))
}

/// librdkafka knows its properties, and most of what they may be.
fn refused_by_librdkafka(name: &str, value: &str) -> Option<RefusedProperty> {
    if Oidc::is_ours(name) {
        return None;
    }
    let mut config = ClientConfig::new();
    // Of a value that could not be read, only the name can be wrong.
    let known = match value {
        "" => config.create_native_config().and_then(|native| native.get(name).map(drop)),
        value => config.set(name, value).create_native_config().map(drop),
    };
    let text = match known.err()? {
        KafkaError::ClientConfig(_, description, ..) => description,
        other => other.to_string(),
    };
    let why = Secrets::among([(name, value)]).removed_from(&text);
    Some(RefusedProperty::new(
        why,
        "correct it: librdkafka's CONFIGURATION.md lists all properties and their values",
    ))
}

/// Defaults of the source; they may be overridden.
///
/// How much is fetched ahead, and how long a fetch waits, follows from the memory of the process and the number of partitions: see
/// `source/ahead.rs`. One of these looks odd. When a partition has enough in its queue librdkafka waits
/// `fetch.queue.backoff.ms` before it looks again: a second by default, in which a queue as short as ours has long run dry.
pub(crate) const CONSUMER_DEFAULTS: [(&str, &str); 6] = [
    ("client.id", "oncebox"),
    ("partition.assignment.strategy", "cooperative-sticky"),
    ("fetch.queue.backoff.ms", "10"),
    ("fetch.error.backoff.ms", "200"),
    ("topic.metadata.refresh.interval.ms", "30000"),
    ("statistics.interval.ms", "5000"),
];

/// Defaults of the sink; they may be overridden.
///
/// A key goes to the partition that Java's clients would choose. How large an event may be is left to the topic: only the
/// broker knows, and it says so for each event. Waiting for a millisecond makes batches a good deal larger, and is all that
/// a single event pays. A broker that is back is found within a second or so.
pub(crate) const PRODUCER_DEFAULTS: [(&str, &str); 7] = [
    ("partitioner", "murmur2_random"),
    ("linger.ms", "1"),
    ("message.max.bytes", "70000000"),
    ("queue.buffering.max.kbytes", "131072"),
    ("reconnect.backoff.ms", "20"),
    ("reconnect.backoff.max.ms", "1000"),
    ("client.id", "oncebox"),
];

/// What the sink must have.
pub(crate) const PRODUCER_MUSTS: [(&str, &str); 8] = [
    ("enable.idempotence", "true"),
    // An event that fails for good stops the producer: what is behind it must not overtake it.
    ("enable.gapless.guarantee", "true"),
    ("acks", "all"),
    // A message that is given up here could have been written.
    ("message.timeout.ms", "0"),
    ("retries", "2147483647"),
    ("max.in.flight", "5"),
    ("allow.auto.create.topics", "false"),
    // Only the source reads them.
    ("statistics.interval.ms", "0"),
];

/// Who sets the second means the first as well, so our default for the first is left out.
const ALIASES: [(&str, &str); 3] = [
    ("fetch.message.max.bytes", "max.partition.fetch.bytes"),
    // A fetch must be able to hold the largest message; librdkafka then chooses the size itself.
    ("fetch.max.bytes", "message.max.bytes"),
    ("linger.ms", "queue.buffering.max.ms"),
];

/// Whether our default for this property is to be left out, because `is_set` says that the user chose.
pub(crate) fn is_chosen(property: &str, is_set: impl Fn(&str) -> bool) -> bool {
    is_set(property) || ALIASES.iter().any(|(of, alias)| *of == property && is_set(alias))
}
