//! The librdkafka properties that follow from what oncebox promises. One table of properties serves the source and the
//! sink; librdkafka itself ignores those that are for the other one.

/// What we promise depends on these, so nobody may set them.
pub(crate) const RESERVED: [(&str, &str); 27] = [
    ("bootstrap.servers", "name the brokers where the cluster is named"),
    ("metadata.broker.list", "name the brokers where the cluster is named"),
    ("group.id", "the group is the consumer's name, or what `group` says"),
    ("group.protocol", "only the classic protocol is supported yet"),
    ("enable.auto.commit", "offsets are committed after the database has committed"),
    ("auto.commit.enable", "offsets are committed after the database has committed"),
    ("enable.auto.offset.store", "offsets are committed after the database has committed"),
    ("auto.offset.reset", "a gap must stop the partition; where a new consumer begins is what `start` says"),
    ("isolation.level", "messages of aborted transactions must not be applied"),
    ("check.crcs", "a damaged message must not be applied"),
    ("enable.partition.eof", "it is used by nobody and costs an event per partition"),
    ("allow.auto.create.topics", "a misspelt topic must be an error, not a new topic"),
    ("log.queue", "logs are read from a queue"),
    ("enable.idempotence", "without it a retry could change the order of events"),
    ("enable.gapless.guarantee", "an event that failed must not be overtaken by the next one of its key"),
    ("acks", "an event is published when all replicas in sync have it"),
    ("request.required.acks", "an event is published when all replicas in sync have it"),
    ("transactional.id", "events are published at least once, and told apart by their id"),
    ("message.timeout.ms", "an event that was given up could have been written; the relay decides"),
    ("delivery.timeout.ms", "an event that was given up could have been written; the relay decides"),
    ("retries", "an event that was given up could have been written; the relay decides"),
    ("message.send.max.retries", "an event that was given up could have been written; the relay decides"),
    ("max.in.flight", "the order of events depends on it"),
    ("max.in.flight.requests.per.connection", "the order of events depends on it"),
    ("queuing.strategy", "the order of events depends on it"),
    (
        "queue.buffering.backpressure.threshold",
        "an idempotent producer takes no other value than its default",
    ),
    ("delivery.report.only.error", "an event is published when its delivery is reported"),
];

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
