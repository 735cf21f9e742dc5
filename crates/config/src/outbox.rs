//! `[outbox]`: publishing events.

use std::time::Duration;

use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::RelaySettings;

use super::bounds::{self, duration, duration_within};
use super::connections::RELAY_LEAST;
use super::kafka::Clusters;
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
    /// `kafka`: the cluster of `[kafka.NAME]` that events go to. Default: the one of `[kafka]`.
    pub cluster: Option<String>,
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
    /// `max_connections`: how many of the store's the relay may use at once, at least two. See
    /// [`Config::connections`](crate::Config::connections).
    pub max_connections: Option<u32>,
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
            cluster: None,
            routes: Vec::new(),
            keep,
            source,
            lease,
            max_age: Duration::from_secs(5 * 60),
            batch,
            max_connections: None,
        }
    }
}

/// What the other sections of the file offer to publish to.
pub(super) struct Sinks<'o, 'c, 'a> {
    pub(super) kafka: &'o mut Clusters<'c, 'a>,
    pub(super) rabbitmq: bool,
    pub(super) webhooks: bool,
    /// An inbox gets what it accepted from the relay.
    pub(super) accepts: bool,
}

/// `taken` holds the patterns of webhooks.
pub(super) fn read(
    mut section: Section<'_, '_>,
    sinks: &mut Sinks<'_, '_, '_>,
    taken: &mut Vec<String>,
) -> OutboxConfig {
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
    let (cluster, has_cluster) = cluster(&mut section, exchange.is_some(), sinks.kafka);
    let has_sink = has_cluster || sinks.webhooks || sinks.accepts || exchange.is_some() || !routes.is_empty();
    let relay = section.or("relay", default.relay, |entry| {
        let relay = entry.boolean()?;
        if relay && !has_sink {
            let fix = if sinks.kafka.is_empty() {
                "add [kafka] with `brokers`, an `exchange` of [rabbitmq], or a [[webhook]]"
            } else {
                "say which cluster, with `kafka`, or name an `exchange` of [rabbitmq], or add a [[webhook]]"
            };
            entry.report("the relay has nothing to publish to", fix);
        }
        Some(relay)
    });
    if relay && has_cluster && exchange.is_none() {
        sinks.kafka.note_use(cluster.as_deref());
    }
    let keep = section.or("keep", default.keep, |e| duration(&e, Duration::ZERO));
    let source = section.or("source", default.source, |e| source(&e));
    let lease_limits = Duration::from_secs(2)..=Duration::from_secs(5 * 60);
    let lease = section.or("lease", default.lease, |e| duration_within(&e, lease_limits));
    let max_age = section.or("max_age", default.max_age, |e| duration(&e, Duration::from_secs(1)));
    let batch = section.or("batch", default.batch, |e| Some(bounds::batch(e.into_section()?, default.batch)));
    let share = i64::from(RELAY_LEAST)..=1000;
    let max_connections =
        section.or("max_connections", None, |e| e.integer(&share).map(|most| u32::try_from(most).ok()));
    section.finish();
    OutboxConfig { relay, exchange, cluster, routes, keep, source, lease, max_age, batch, max_connections }
}

/// Which cluster events go to, with or without a name, and whether there is one.
fn cluster(
    section: &mut Section<'_, '_>,
    has_exchange: bool,
    clusters: &Clusters<'_, '_>,
) -> (Option<String>, bool) {
    let Some(entry) = section.optional("kafka") else { return (None, clusters.unknown(None).is_none()) };
    if has_exchange {
        entry.report("`exchange` takes the events that nobody else takes", "keep one of them");
    }
    let name = entry.filled_text();
    if let Some((message, fix)) = name.as_deref().and_then(|name| clusters.unknown(Some(name))) {
        entry.report(message, fix);
    }
    (name, true)
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
