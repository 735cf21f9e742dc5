//! The Kafka source and sink of oncebox.
//!
//! Built on librdkafka. The source reads topics as a member of a consumer group and hands every record to the engine. One
//! thread of its own polls the broker for ever, so a slow handler never costs the membership in
//! the group; records that the engine has no room for stay at the broker. The position in the database decides where
//! reading begins; the offsets committed at the broker are a hint for people and tools.
//!
//! The sink publishes events with idempotent producers, each busy with one batch at a time: what happens to a batch, or to a
//! relay that must let go of it, touches no other.
//!
//! ```no_run
//! use oncebox_kafka::Kafka;
//!
//! let kafka = Kafka::brokers("localhost:9092").property("security.protocol", "SASL_SSL");
//! let source = kafka.source(["stock.updates"]);
//! let sink = kafka.sink();
//! ```

pub mod admin;
mod assignment;
mod begin;
mod callbacks;
mod commit;
mod deliver;
mod error;
mod health;
mod log_ids;
mod partition;
mod properties;
mod quiet;
mod reader;
mod rebalance;
mod recheck;
mod record;
mod secrets;
mod settings;
mod sink;
mod source;
mod survey;

pub use error::Error;
pub use settings::Kafka;
pub use sink::KafkaSink;
pub use source::KafkaSource;

/// The version of the librdkafka that is linked in, such as `2.12.1`.
#[must_use]
pub fn librdkafka_version() -> String {
    rdkafka::util::get_rdkafka_version().1
}
