//! The Kafka source and sink of oncebox, built on librdkafka.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use oncebox::kafka::Kafka;
//!
//! let kafka = Kafka::brokers("one:9092,two:9092")
//!     .property("security.protocol", "SASL_SSL")
//!     .property("sasl.mechanism", "SCRAM-SHA-512")
//!     .property("sasl.username", "stock")
//!     .property("sasl.password", std::env::var("KAFKA_PASSWORD")?);
//! // The first property that oncebox must set itself would be refused here, by name.
//! kafka.validate()?;
//!
//! // What an inbox reads, and where the events of a relay go.
//! let source = kafka.source(["stock.updates"]).drain_budget(Duration::from_secs(5));
//! let sink = kafka.sink();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The source
//!
//! It reads topics as a member of a consumer group: the consumer's name, unless [`KafkaSource::group`] says otherwise. The
//! position in the database decides where reading begins; the offsets committed at the broker are a hint for people and tools.
//! A thread of its own polls the broker, so a slow handler never costs the membership in the group. Records that the engine
//! has no room for stay in librdkafka's queue, and behind that at the broker.
//!
//! At a **rebalance**:
//!
//! * A partition that is assigned is not read at once. First the engine takes over its position, which fences the former owner,
//!   and the broker says which log it has and from where to where. If the next message is gone, or the log is another one, the
//!   partition stops with an error that names the command to go on; it never jumps.
//! * A partition that is revoked is given back in order: no new batches, the transactions in flight end
//!   ([`KafkaSource::drain_budget`] bounds the wait), offsets are committed, and only then the next owner gets it. It begins
//!   exactly where this process ended.
//! * A partition that is lost, because the group had not heard from us, is dropped without a commit. The next owner's epoch in
//!   the database keeps a late transaction from committing.
//!
//! The other partitions go on meanwhile (`cooperative-sticky`).
//!
//! # The sink
//!
//! It publishes events with idempotent producers, each busy with one batch at a time: what happens to a batch, or to a relay that
//! must let go of it, touches no other. An event is published when all replicas in sync have it. See [`KafkaSink`] for what
//! waits and what is given up.
//!
//! # Properties
//!
//! [`Kafka::property`] passes any librdkafka property on; one set serves source and sink. Those on which the promises
//! rest (`enable.auto.commit`, `isolation.level`, `acks`, …) are refused with the reason. Others have defaults that keep the
//! memory of a process small whatever the backlog is: about 1 MiB a partition besides the engine's batches. Values of properties
//! that are secrets appear neither in logs nor in errors.
//!
//! # Limits
//!
//! * Only the classic group protocol. All members of a group must use an assignment strategy in common.
//! * Topics are never created: to read one that does not exist is an error that `/healthz` shows, and events to one wait.
//! * Brokers before Kafka 2.8 have no topic ids. There a topic that was created again is recognised by its last settled message.
//! * The sink delivers at least once and uses no Kafka transactions: receivers tell copies by the id of the event.
//! * A header whose name is not UTF-8 cannot be read; the rest of its message can.
//!
//! # Which file does what
//!
//! | file | what it does |
//! |---|---|
//! | `settings.rs`, `properties.rs` | how to reach a cluster; the properties we set, and those nobody else may |
//! | `sign_in.rs`, `hints.rs` | the ways to sign in, and what each needs; what to look at when a broker does not let us in |
//! | `trust.rs` | where this machine keeps the certificates of the authorities it trusts |
//! | `oauth.rs`, `oauth/oidc.rs`, `oauth/endpoint.rs` | signing in with a token: the properties, and the question for one |
//! | `oauth/keeper.rs`, `oauth/tokens.rs` | the token of a cluster, asked for in time; how clients get it |
//! | `admin.rs`, `admin/group.rs` | questions about a cluster and about its groups, for the tools |
//! | `log_ids.rs`, `ends.rs`, `quiet.rs` | which log stands behind the name of a topic; where logs begin and end; clients that only ask |
//! | `error.rs`, `logging.rs` | errors and log lines, without secrets |
//! | `source.rs`, `source/reader.rs` | the source; its thread and the loop |
//! | `source/bell.rs`, `source/agenda.rs` | who has something for the loop; what it has to come back to |
//! | `source/ask.rs`, `source/ask/desk.rs`, `source/ask/look.rs` | what brokers are asked, off the loop; sorted by broker; one broker asked |
//! | `source/callbacks.rs`, `source/rebalance.rs` | what the group asks; taking over partitions and giving them back |
//! | `source/begin.rs`, `source/assignment.rs` | where a partition begins; telling librdkafka to fetch it |
//! | `source/gate.rs` | topics that somebody looks at before they are read |
//! | `source/ahead.rs` | how much is fetched ahead, and how long a fetch waits |
//! | `source/deliver.rs` | from the queue of a partition to the engine |
//! | `source/commit.rs` | from the engine to the group's offsets |
//! | `source/recheck.rs` | is it still the same log, and are the next messages still there? |
//! | `source/fenced.rs` | a member that another process has replaced |
//! | `source/statistics.rs`, `source/health.rs`, `source/trouble.rs` | brokers, group, leaders, lag, `/healthz` |
//! | `source/partition.rs` | what the reader knows about each partition |
//! | `sink.rs`, `sink/batch.rs` | the sink; what is sent together, and what became of each event |
//! | `sink/pool.rs`, `sink/producer.rs`, `sink/reports.rs` | the producers, one batch each, and their delivery reports |
//! | `sink/blocking.rs` | calls of librdkafka that block, off the runtime |
//! | `sink/failure.rs`, `sink/trouble.rs` | whose fault a failure is; warnings |
//!
//! A record goes `reader` → `deliver` → `record` → the engine → `commit`.

// What the tests share with those beside the crate knows it by its name.
#[cfg(test)]
extern crate self as oncebox_kafka;

pub mod admin;
mod ends;
mod error;
mod hints;
mod log_ids;
mod logging;
mod oauth;
mod properties;
mod quiet;
mod settings;
mod sign_in;
mod sink;
mod source;
mod trust;

pub use error::Error;
pub use oncebox_kafka_ffi::TopicPattern;
pub use properties::{RefusedProperty, refused_property, refused_together, reserved_properties};
pub use settings::Kafka;
pub use sink::KafkaSink;
pub use source::{KafkaSource, TopicGate};

/// The version of the librdkafka that is linked in, such as `2.12.1`.
#[must_use]
pub fn librdkafka_version() -> String {
    rdkafka::util::get_rdkafka_version().1
}
