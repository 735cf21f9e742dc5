//! The librdkafka properties that follow from what oncebox promises. One table of properties serves the source and the
//! sink; librdkafka itself ignores those that are for the other one.

/// Why a property may not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedProperty {
    /// What depends on it.
    pub why: &'static str,
    /// The setting of oncebox that serves the purpose, if there is one: `brokers`, `group` or `start`.
    pub instead: Option<&'static str>,
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

/// Why a property may not have this value, if it may not.
#[must_use]
pub fn refused_property(name: &str, value: &str) -> Option<RefusedProperty> {
    if name == "statistics.interval.ms" && value == "0" {
        let why = "the statistics tell whether brokers can be reached and how far behind we are";
        return Some(RefusedProperty { why, instead: None });
    }
    let (_, why, instead) = RESERVED.iter().find(|(reserved, ..)| *reserved == name)?;
    Some(RefusedProperty { why, instead: *instead })
}

/// Defaults of the source; they may be overridden.
///
/// They keep the memory of a process small whatever the backlog is: up to `queued.max.messages.kbytes` for each partition,
/// and a fetch more. Two of them look odd. When a partition has enough in its queue librdkafka waits
/// `fetch.queue.backoff.ms` before it looks again: a second by default, in which a queue as short as ours has long run dry.
/// And there is one fetch at a time for each broker: one that waits there for partitions without news, for
/// `fetch.wait.max.ms`, holds up a busy partition whose queue has run dry meanwhile.
pub(crate) const CONSUMER_DEFAULTS: [(&str, &str); 10] = [
    ("client.id", "oncebox"),
    ("partition.assignment.strategy", "cooperative-sticky"),
    ("queued.max.messages.kbytes", "1024"),
    ("fetch.queue.backoff.ms", "10"),
    ("fetch.message.max.bytes", "262144"),
    ("fetch.max.bytes", "8388608"),
    ("fetch.wait.max.ms", "50"),
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
