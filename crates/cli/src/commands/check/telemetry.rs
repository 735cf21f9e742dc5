//! Whether the collector takes spans. Nothing else depends on it, so it is never more than a warning.

use oncebox_config::Config;
use oncebox_core::store::Finding;

use crate::load;

const SUBJECT: &str = "telemetry";

pub(super) async fn check(config: &Config) -> Vec<Finding> {
    let Some(telemetry) = &config.telemetry else { return Vec::new() };
    let exporter = match load::exporter(telemetry) {
        Ok(exporter) => exporter,
        Err(e) => return vec![Finding::error(SUBJECT, e.to_string())],
    };
    let collector = telemetry.otlp.origin();
    let mut findings = Vec::new();
    if telemetry.otlp.is_in_the_clear() && !telemetry.headers.is_empty() {
        let detail =
            format!("{collector} gets the headers unencrypted; use https, or a collector on this machine");
        findings.push(Finding::warning(SUBJECT, detail));
    }
    findings.push(match exporter.probe().await {
        Ok(()) => Finding::ok(SUBJECT, format!("{collector} takes spans")),
        Err(reason) => Finding::warning(
            SUBJECT,
            format!("{collector} takes no spans: {reason}. Messages go on without them"),
        ),
    });
    findings
}
