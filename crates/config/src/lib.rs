//! The config file `oncebox.toml`.
//!
//! [`Config::parse`] takes its text and its [`Surroundings`] and reports everything that is wrong at once, each with its key,
//! its line and what to do. It touches neither files nor the environment, and knows neither a database nor a broker.

mod adopt;
mod bounds;
mod changes;
mod connections;
mod expand;
mod filter;
mod handler;
mod http;
mod inbox;
mod kafka;
mod log;
mod operations;
mod outbox;
mod problem;
mod rabbitmq;
mod reader;
mod service;
mod source;
mod store;
mod surroundings;
mod sweep;
mod telemetry;
#[cfg(test)]
mod tests;
mod units;
mod url_text;
mod webhook;

use connections::Places;
use kafka::Clusters;
use outbox::Sinks;
use reader::{Context, Entry, Section};
use source::Offered;

pub use changes::changed_keys;
pub use connections::Connections;
pub use filter::FilterConfig;
pub use handler::HandlerConfig;
pub use http::{HttpAuthConfig, HttpConfig, HttpProxyConfig, PayloadsConfig, is_remote};
pub use inbox::InboxConfig;
pub use kafka::{KafkaClusters, KafkaConfig, cluster_heading};
pub use log::LogConfig;
pub use operations::Operations;
pub use outbox::{OutboxConfig, RouteConfig};
pub use problem::{Problem, Problems};
pub use rabbitmq::RabbitmqConfig;
pub use service::{LimitsConfig, PurgeConfig};
pub use source::{
    HandshakeConfig, HttpInbox, HttpMode, KafkaInbox, RabbitmqInbox, RetentionCheck, SecretsConfig,
    SourceConfig, VerifyConfig, VerifyScheme,
};
pub use store::{PartitionReceipts, StoreConfig, StoreKind};
pub use surroundings::{CheckTogether, OperationProblem, OperationUse, RefusedProperty, Surroundings};
pub use sweep::SweepConfig;
pub use telemetry::TelemetryConfig;
pub use webhook::{WebhookConfig, WebhookUrl};

/// The commented file that `oncebox init` writes. It parses without problems.
pub const TEMPLATE: &str = include_str!("template.toml");

/// All that `oncebox.toml` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[store]`: the database. Required.
    pub store: StoreConfig,
    /// `[kafka]` and `[kafka.NAME]`: where messages come from and events go. Not empty when an inbox has topics, or a relay no
    /// other sink.
    pub kafka: KafkaClusters,
    /// `[rabbitmq]`: where messages come from. Present when an inbox has a queue.
    pub rabbitmq: Option<RabbitmqConfig>,
    /// `[http]`: health, metrics and the dashboard, if wanted.
    pub http: Option<HttpConfig>,
    /// `[log]`: what `oncebox run` says of itself.
    pub log: LogConfig,
    /// `[telemetry]`: spans for a collector, if wanted.
    pub telemetry: Option<TelemetryConfig>,
    /// `[[inbox]]`: the consumers.
    pub inboxes: Vec<InboxConfig>,
    /// `[limits]`: what the process may use.
    pub limits: LimitsConfig,
    /// `[purge]`: removing old receipts.
    pub purge: PurgeConfig,
    /// `[outbox]`: publishing events.
    pub outbox: OutboxConfig,
    /// `[[webhook]]`: events that go out by HTTP.
    pub webhooks: Vec<WebhookConfig>,
    /// `[[sweep]]`: queries whose rows become events.
    pub sweeps: Vec<SweepConfig>,
}

impl Config {
    /// Reads the text of a config file.
    ///
    /// ```
    /// use oncebox_config::{Config, Surroundings};
    ///
    /// let surroundings = Surroundings { env: &|_| None, ..Surroundings::default() };
    /// let problems = Config::parse("[store]\nurl = \"${DATABASE_URL}\"", &surroundings).unwrap_err();
    /// assert_eq!(
    ///     problems.render("oncebox.toml"),
    ///     "oncebox.toml:2: store.url: the environment variable DATABASE_URL is not set; set DATABASE_URL"
    /// );
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the lines.
    pub fn parse(text: &str, surroundings: &Surroundings<'_>) -> Result<Self, Problems> {
        let cx = Context::new(text, surroundings);
        let config = match toml_span::parse(text) {
            Ok(root) => Section::root(&cx, root).and_then(read),
            Err(error) => {
                cx.report_syntax(&error);
                None
            }
        };
        match (config, cx.into_problems()) {
            (Some(config), problems) if problems.is_empty() => Ok(config),
            (_, problems) => Err(problems),
        }
    }
}

/// What a share of the store's connections is called, and the whole of them.
const SHARE: &str = "max_connections";

fn read(mut root: Section<'_, '_>) -> Option<Config> {
    let store = root.required("store", "it is missing", "add [store] with the `url` of the database");
    let mut places = Places { pool: store.as_ref().and_then(|e| e.place_of(SHARE)), ..Places::default() };
    let store = store.and_then(Entry::into_section).and_then(store::read);
    let kafka = root.optional("kafka").and_then(Entry::into_section);
    let mut kafka = kafka.map_or_else(Clusters::none, kafka::read);
    let rabbitmq = root.optional("rabbitmq");
    let has_rabbitmq = rabbitmq.is_some();
    let rabbitmq = rabbitmq.and_then(Entry::into_section).and_then(rabbitmq::read);
    let http = root.optional("http").and_then(Entry::into_section).map(http::read);
    let mut offered = Offered { kafka: &mut kafka, rabbitmq: has_rabbitmq, http: http::reach(http.as_ref()) };
    let log = root.or("log", LogConfig::default(), |e| e.into_section().map(log::read));
    let telemetry = root.optional("telemetry").and_then(Entry::into_section).and_then(telemetry::read);
    let purge = root.or("purge", PurgeConfig::default(), |e| e.into_section().map(service::read_purge));
    let limits = root.or("limits", LimitsConfig::default(), |e| e.into_section().map(service::read_limits));
    let inboxes = items(&mut root, "inbox", "[[inbox]], with two brackets");
    places.shares = inboxes.iter().filter_map(|entry| entry.place_of(SHARE)).collect();
    let webhooks = items(&mut root, "webhook", "[[webhook]], with two brackets");
    let sweeps = items(&mut root, "sweep", "[[sweep]], with two brackets");
    let first_webhook = webhooks.first().map(|first| first.place());
    let kind = store.as_ref().map(|store| store.kind);
    let adopt = store.as_ref().and_then(|store| store.adopt.as_ref());
    if let Some(adopt) = adopt {
        adopt::check_consumers(adopt, &inboxes);
    }
    let mut taken = inbox::Taken::default();
    let inboxes = inboxes
        .into_iter()
        .filter_map(|entry| inbox::read(entry.into_section()?, kind, adopt, &mut offered, &mut taken))
        .collect();
    let accepted = taken.accepts;
    let read_with_more: Vec<_> = taken.groups.into_iter().map(|(cluster, _)| cluster).collect();
    let mut sinks = Sinks {
        kafka: &mut kafka,
        rabbitmq: has_rabbitmq,
        webhooks: !webhooks.is_empty(),
        accepts: !accepted.is_empty(),
    };
    let (mut taken, mut names) = (Vec::new(), Vec::new());
    let webhooks = webhooks
        .into_iter()
        .filter_map(|entry| webhook::read(entry.into_section()?, &mut taken, &mut names))
        .collect();
    let outbox = root.or("outbox", OutboxConfig::default(), |e| {
        places.shares.extend(e.place_of(SHARE));
        Some(outbox::read(e.into_section()?, &mut sinks, &mut taken))
    });
    if !outbox.relay {
        for place in &accepted {
            place.report(
                "the relay brings what was accepted to the inbox",
                "write `relay = true` under [outbox]",
            );
        }
    }
    if let Some(first) = first_webhook.filter(|_| !outbox.relay) {
        first.report("a webhook gets its events from the relay", "write `relay = true` under [outbox]");
    }
    let mut taken = Vec::new();
    let sweeps =
        sweeps.into_iter().filter_map(|entry| sweep::read(entry.into_section()?, kind, &mut taken)).collect();
    root.finish();
    let kafka = kafka.finish(&read_with_more);
    let config = Config {
        store: store?,
        kafka,
        rabbitmq,
        http,
        log,
        telemetry,
        inboxes,
        limits,
        purge,
        outbox,
        webhooks,
        sweeps,
    };
    connections::check(&config, &places);
    Some(config)
}

/// The tables of an array of tables.
fn items<'c, 'a>(root: &mut Section<'c, 'a>, key: &'static str, expected: &str) -> Vec<Entry<'c, 'a>> {
    root.optional(key).and_then(|entry| entry.into_items(expected)).unwrap_or_default()
}
