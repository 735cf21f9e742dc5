//! What oncebox is, without a database or a broker.
//!
//! The folders are the picture: [`source`] → [`inbox`] → [`store`] → [`outbox`].

pub mod backoff;
pub mod clock;
mod connections;
pub mod error;
pub mod failpoint;
pub mod inbox;
mod line_limit;
pub mod live;
pub mod message;
pub mod metrics;
pub mod mistake;
pub mod monitor;
pub mod names;
pub mod operate;
pub mod outbox;
pub mod printable;
pub mod quiet;
pub mod secret;
pub mod source;
pub mod store;
pub mod telemetry;
