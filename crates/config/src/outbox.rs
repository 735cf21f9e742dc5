//! `[outbox]`: publishing events.

use std::time::Duration;

use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::RelaySettings;

use super::bounds::{self, duration, duration_within};
use super::reader::{Entry, Section};
use super::webhook;

/// `[outbox]`: publishing the events that handlers and applications emit. The defaults are those of [`RelaySettings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxConfig {
    /// `relay`: publish them, to the `[[webhook]]` or the route whose topics fit, or else to `exchange` or `[kafka]`. Default
    /// false.
    pub relay: bool,
    /// `exchange`: of `[rabbitmq]`, for what no webhook and no route takes. Default: that goes to `[kafka]`.
    pub exchange: Option<String>,
    /// `[[outbox.route]]`: exchanges of `[rabbitmq]` for the events of some topics.
    pub routes: Vec<RouteConfig>,
    /// `keep`: how long published events stay; `0s` deletes them at once.
    pub keep: Duration,
    /// `source`: the CloudEvents source of events that name none.
    pub source: String,
    /// `lease`: how long a shard stays with a relay that is not heard of, from `2s` to `5m`.
    pub lease: Duration,
    /// `max_age`: how old the oldest unpublished event may get before `/healthz` turns red. Default `5m`.
    pub max_age: Duration,
    /// `batch`: how much the relay reads at once.
    pub batch: BatchBounds,
}

/// `[[outbox.route]]`: where in RabbitMQ the events of some topics go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteConfig {
    /// `topics`: names, or patterns in which `*` stands for anything. Required.
    pub topics: Vec<String>,
    /// `exchange`: `""` is the one that takes the routing key for the name of a queue. Required.
    pub exchange: String,
    /// `routing_key`: may hold `{topic}` and `{key}`. Default `{topic}`.
    pub routing_key: String,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        let RelaySettings { source, keep, lease, batch, .. } = RelaySettings::default();
        Self {
            relay: false,
            exchange: None,
            routes: Vec::new(),
            keep,
            source,
            lease,
            max_age: Duration::from_secs(5 * 60),
            batch,
        }
    }
}

/// What the other sections of the file offer to publish to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sinks {
    pub(super) kafka: bool,
    pub(super) rabbitmq: bool,
    pub(super) webhooks: bool,
    /// An inbox gets what it accepted from the relay.
    pub(super) accepts: bool,
}

/// `taken` holds the patterns of webhooks.
pub(super) fn read(mut section: Section<'_, '_>, sinks: Sinks, taken: &mut Vec<String>) -> OutboxConfig {
    let default = OutboxConfig::default();
    let no_broker = |entry: &Entry<'_, '_>| {
        if !sinks.rabbitmq {
            entry.report("an exchange needs a broker", "add [rabbitmq] with its `url`");
        }
    };
    let exchange = section.or("exchange", None, |entry| {
        no_broker(&entry);
        entry.filled_text().map(Some)
    });
    let routes =
        section.optional("route").and_then(|entry| entry.into_items("[[outbox.route]], with two brackets"));
    let routes: Vec<RouteConfig> = routes
        .unwrap_or_default()
        .into_iter()
        .filter_map(|entry| {
            no_broker(&entry);
            route(entry.into_section()?, taken)
        })
        .collect();
    let has_sink = sinks.kafka || sinks.webhooks || sinks.accepts || exchange.is_some() || !routes.is_empty();
    let relay = section.or("relay", default.relay, |entry| {
        let relay = entry.boolean()?;
        if relay && !has_sink {
            entry.report(
                "the relay has nothing to publish to",
                "add [kafka] with `brokers`, an `exchange` of [rabbitmq], or a [[webhook]]",
            );
        }
        Some(relay)
    });
    let keep = section.or("keep", default.keep, |e| duration(&e, Duration::ZERO));
    let source = section.or("source", default.source, |e| source(&e));
    let lease_limits = Duration::from_secs(2)..=Duration::from_secs(5 * 60);
    let lease = section.or("lease", default.lease, |e| duration_within(&e, lease_limits));
    let max_age = section.or("max_age", default.max_age, |e| duration(&e, Duration::from_secs(1)));
    let batch = section.or("batch", default.batch, |e| Some(bounds::batch(e.into_section()?, default.batch)));
    section.finish();
    OutboxConfig { relay, exchange, routes, keep, source, lease, max_age, batch }
}

fn route(mut section: Section<'_, '_>, taken: &mut Vec<String>) -> Option<RouteConfig> {
    let topics = section
        .required("topics", "it is missing", webhook::TOPICS_FIX)
        .and_then(|entry| webhook::topics(entry, taken));
    let exchange = section
        .required("exchange", "it is missing", "name the exchange; \"\" takes the routing key for a queue")
        .and_then(|entry| entry.text());
    let routing_key = section.or("routing_key", "{topic}".to_owned(), |e| e.text());
    section.finish();
    Some(RouteConfig { topics: topics?, exchange: exchange?, routing_key })
}

fn source(entry: &Entry<'_, '_>) -> Option<String> {
    let source = entry.filled_text()?;
    if source.len() > 1024 || source.contains(|c: char| c.is_whitespace() || c.is_control()) {
        entry.report(
            "this is not a CloudEvents source",
            "write a URI or a path without blanks, such as \"/erp/stock\"",
        );
        return None;
    }
    Some(source)
}
