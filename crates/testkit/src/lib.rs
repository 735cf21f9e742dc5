//! Tests for handlers, without a broker; and, with the feature `conformance`, what every store must do.
//!
//! [`TestInbox`] runs your handler in the real engine against a real store: claim, handler, commit, acknowledge. Only the
//! broker is replaced, by a log in memory. Rust services get this crate as `oncebox::testing`.

#[cfg(feature = "conformance")]
pub mod conformance;

mod crash;
mod delivered;
mod event;
mod inbox;
mod log;
mod message;
mod observe;
mod partition;
mod queue;
mod relay;
mod retention;
mod run;
mod sink;

pub use delivered::{Delivered, FailedTry, Redelivered};
pub use event::{Events, TestEvent, events};
pub use inbox::TestInbox;
pub use message::{TestMessage, message, message_without_id};
pub use partition::{Partition, eventually};
pub use queue::{MemoryConsumer, MemoryQueue};
pub use relay::drain;
pub use sink::FakeSink;
