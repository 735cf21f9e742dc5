//! What sends spans, as the configuration says.

use oncebox_config::TelemetryConfig;
use oncebox_otlp::{AddressError, Exporter, Settings};

/// Sends nothing before it runs.
pub(crate) fn exporter(config: &TelemetryConfig) -> Result<Exporter, AddressError> {
    Exporter::new(Settings {
        collector: config.otlp.expose().to_owned(),
        headers: config.headers.clone(),
        service_name: config.service_name.clone(),
        service_version: env!("CARGO_PKG_VERSION"),
    })
}
