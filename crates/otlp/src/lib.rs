//! Sends the spans of oncebox to a collector, by OTLP over HTTP: protobuf to `/v1/traces`.
//!
//! A collector that is away, slow or in trouble delays nobody: spans wait in a bounded queue, and what has no room, or was refused, is
//! dropped and counted (`oncebox_telemetry_dropped_total`).

mod client;
mod encode;
mod export;
mod queue;
mod wire;

pub use client::AddressError;
pub use export::{Exporter, FLUSH_LIMIT};

use oncebox_core::secret::Secret;

/// Where spans go, and who they are from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The URL of the collector, such as `http://127.0.0.1:4318`. `/v1/traces` is added, unless it ends so.
    pub collector: String,
    /// Further headers of each request.
    pub headers: Vec<(String, Secret)>,
    /// The attribute `service.name`.
    pub service_name: String,
    /// The attribute `service.version`.
    pub service_version: &'static str,
}
