//! `[rabbitmq]`: the broker.

use oncebox_core::secret::Secret;
use url::Url;

use super::reader::{Entry, Section};

/// `[rabbitmq]`: where queues are read from, and where events may go. Needed as soon as an `[[inbox]]` has a `queue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RabbitmqConfig {
    /// `url`: `amqp://` or `amqps://`, or several of one cluster, separated by commas. They may hold a password. Required.
    pub url: Secret,
}

const FIX: &str =
    "write amqp://USER:PASSWORD@HOST:5672/%2f, or amqps:// with TLS; several, separated by commas";

pub(super) fn read(mut section: Section<'_, '_>) -> Option<RabbitmqConfig> {
    let url = section.required("url", "it is missing", FIX).and_then(|entry| url(&entry));
    section.finish();
    Some(RabbitmqConfig { url: url? })
}

/// Reads the URLs without ever repeating them in a message: they hold a password.
fn url(entry: &Entry<'_, '_>) -> Option<Secret> {
    let text = entry.url_text(true)?;
    let is_amqp = |url: &str| {
        Url::parse(url.trim()).is_ok_and(|url| matches!(url.scheme(), "amqp" | "amqps") && url.has_host())
    };
    if !text.split(',').all(is_amqp) {
        entry.report("this is not a URL of a RabbitMQ broker", FIX);
        return None;
    }
    Some(Secret::new(text))
}
