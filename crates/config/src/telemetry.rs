//! `[telemetry]`: spans for a collector of OpenTelemetry.

use oncebox_core::secret::Secret;
use oncebox_core::telemetry::Ratio;

use super::reader::{Entry, Section};
use super::webhook::{self, WebhookUrl};

/// `[telemetry]`: who gets spans, and of which messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetryConfig {
    /// `otlp`: the collector, http or https. Required.
    pub otlp: WebhookUrl,
    /// `headers`: further headers of every request.
    pub headers: Vec<(String, Secret)>,
    /// `service_name`: what this process is called in traces. Default `oncebox`.
    pub service_name: String,
    /// `sample`: which part of the messages without a `traceparent` begins a trace. Default 0.
    pub sample: Ratio,
    /// `message_ids`: whether spans hold the ids of messages. Default false.
    pub message_ids: bool,
}

const FIX: &str = "write where the collector takes OTLP over HTTP, as in \"http://127.0.0.1:4318\"";

pub(super) fn read(mut section: Section<'_, '_>) -> Option<TelemetryConfig> {
    let otlp = section.required("otlp", "it is missing", FIX).and_then(|entry| collector(&entry));
    let headers = section.or("headers", Vec::new(), |e| e.into_section().map(webhook::headers));
    let service_name = section.or("service_name", "oncebox".to_owned(), |e| e.filled_text());
    let sample = section.or("sample", Ratio::default(), |e| e.ratio());
    let message_ids = section.or("message_ids", false, |e| e.boolean());
    section.finish();
    Some(TelemetryConfig { otlp: otlp?, headers, service_name, sample, message_ids })
}

/// Reads the URL without ever repeating it in a message: it may hold a token.
fn collector(entry: &Entry<'_, '_>) -> Option<WebhookUrl> {
    let text = entry.url_text(false)?;
    let Some(url) = WebhookUrl::parse(&text) else {
        entry.report("this is not the URL of a collector", FIX);
        return None;
    };
    if url.has_credentials() {
        entry.report(
            "a user or a password in this URL is not sent",
            "write them under `headers`, as the collector wants them",
        );
        return None;
    }
    Some(url)
}
