//! Every message changes your database once.
//!
//! A broker delivers a message again: after a crash, a rebalance, a relay that published twice, an operator who rewound a
//! topic. oncebox writes the message's stable id and the effect of your handler in one database transaction; a copy whose id
//! is already there is skipped and acknowledged.
//!
//! ```no_run
//! # #[cfg(all(feature = "kafka", feature = "postgres"))]
//! # mod example {
#![doc = include_str!("../../../examples/first.rs")]
//! # }
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `kafka` | [`kafka`]: the Kafka source |
//! | `postgres` | [`postgres`]: the PostgreSQL store |
//! | `sqlite` | [`sqlite`]: the SQLite store |
//! | `webhook` | [`webhook`]: the sink that delivers events over HTTP |
//!
//! # What it promises
//!
//! The effect of a message on the database of its handler is applied once per (tenant, consumer, message id) within the
//! retention horizon. A handler may be *invoked* more than once (crash, deadlock, isolation of a failing batch); its effect
//! commits once. What is not in the transaction (mail, HTTP) is at least once, through the outbox, with a stable event id.

#[doc(inline)]
pub use oncebox_core::backoff::Backoff;
#[doc(inline)]
pub use oncebox_core::error::{BoxError, Outcome, Result, reject, retry, retry_after};
#[doc(inline)]
pub use oncebox_core::inbox::*;
#[doc(inline)]
pub use oncebox_core::message::*;
#[doc(inline)]
pub use oncebox_core::monitor::Monitor;
#[doc(inline)]
pub use oncebox_core::outbox::*;
pub use oncebox_core::{clock, error, inbox, message, monitor, names, outbox, source, store};

#[cfg(feature = "kafka")]
pub use oncebox_kafka as kafka;
#[cfg(feature = "postgres")]
pub use oncebox_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use oncebox_sqlite as sqlite;
#[cfg(feature = "webhook")]
pub use oncebox_webhook as webhook;
