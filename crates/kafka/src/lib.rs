//! The Kafka source of oncebox: reads topics as a member of a consumer group and hands every record to the engine.
//!
//! Built on librdkafka. One thread of its own polls the broker for ever, so a slow handler never costs the membership in
//! the group; records that the engine has no room for stay at the broker. The position in the database decides where
//! reading begins; the offsets committed at the broker are a hint for people and tools.
//!
//! ```no_run
//! use oncebox_kafka::Kafka;
//!
//! let source = Kafka::brokers("localhost:9092")
//!     .property("security.protocol", "SASL_SSL")
//!     .source(["stock.updates"]);
//! ```

pub mod admin;
mod assignment;
mod begin;
mod callbacks;
mod commit;
mod deliver;
mod error;
mod health;
mod partition;
mod reader;
mod rebalance;
mod recheck;
mod record;
mod secrets;
mod settings;
mod source;

pub use error::Error;
pub use settings::Kafka;
pub use source::KafkaSource;

/// The version of the librdkafka that is linked in, such as `2.12.1`.
#[must_use]
pub fn librdkafka_version() -> String {
    rdkafka::util::get_rdkafka_version().1
}
