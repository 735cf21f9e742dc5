//! The config file `oncebox.toml`.
//!
//! [`Config::parse`] takes its text and its [`Surroundings`] and reports everything that is wrong at once, each with its key,
//! its line and what to do. It touches neither files nor the environment, and knows neither a database nor a broker.

mod adopt;
mod bounds;
mod expand;
mod handler;
mod inbox;
mod kafka;
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
#[cfg(test)]
mod tests;
mod units;
mod webhook;

use outbox::Sinks;
use reader::{Context, Entry, Section};
use source::Offered;

pub use handler::HandlerConfig;
pub use inbox::InboxConfig;
pub use kafka::KafkaConfig;
pub use operations::Operations;
pub use outbox::{OutboxConfig, RouteConfig};
pub use problem::{Problem, Problems};
pub use rabbitmq::RabbitmqConfig;
pub use service::{HttpConfig, PurgeConfig};
pub use source::{
    HandshakeConfig, HttpInbox, HttpMode, KafkaInbox, RabbitmqInbox, RetentionCheck, SecretsConfig,
    SourceConfig, VerifyConfig, VerifyScheme,
};
pub use store::{PartitionReceipts, StoreConfig, StoreKind};
pub use surroundings::{OperationProblem, OperationUse, RefusedProperty, Surroundings};
pub use sweep::SweepConfig;
pub use webhook::{WebhookConfig, WebhookUrl};

/// The commented file that `oncebox init` writes. It parses without problems.
pub const TEMPLATE: &str = include_str!("template.toml");

/// All that `oncebox.toml` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[store]`: the database. Required.
    pub store: StoreConfig,
    /// `[kafka]`: where messages come from and events go. Present when an inbox has topics, or a relay no other sink.
    pub kafka: Option<KafkaConfig>,
    /// `[rabbitmq]`: where messages come from. Present when an inbox has a queue.
    pub rabbitmq: Option<RabbitmqConfig>,
    /// `[http]`: health and metrics, if wanted.
    pub http: Option<HttpConfig>,
    /// `[[inbox]]`: the consumers.
    pub inboxes: Vec<InboxConfig>,
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

fn read(mut root: Section<'_, '_>) -> Option<Config> {
    let store = root
        .required("store", "it is missing", "add [store] with the `url` of the database")
        .and_then(Entry::into_section)
        .and_then(store::read);
    let kafka = root.optional("kafka");
    let has_kafka = kafka.is_some();
    let kafka = kafka.and_then(Entry::into_section).and_then(kafka::read);
    let rabbitmq = root.optional("rabbitmq");
    let has_rabbitmq = rabbitmq.is_some();
    let rabbitmq = rabbitmq.and_then(Entry::into_section).and_then(rabbitmq::read);
    let http = root.optional("http").and_then(Entry::into_section).map(service::read_http);
    let offered = Offered { kafka: has_kafka, rabbitmq: has_rabbitmq, http: service::reach(http) };
    let purge = root.or("purge", PurgeConfig::default(), |e| e.into_section().map(service::read_purge));
    let inboxes = items(&mut root, "inbox", "[[inbox]], with two brackets");
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
        .filter_map(|entry| inbox::read(entry.into_section()?, kind, adopt, offered, &mut taken))
        .collect();
    let accepted = taken.accepts;
    let sinks = Sinks {
        kafka: has_kafka,
        rabbitmq: has_rabbitmq,
        webhooks: !webhooks.is_empty(),
        accepts: !accepted.is_empty(),
    };
    let mut taken = Vec::new();
    let webhooks =
        webhooks.into_iter().filter_map(|entry| webhook::read(entry.into_section()?, &mut taken)).collect();
    let outbox = root
        .or("outbox", OutboxConfig::default(), |e| Some(outbox::read(e.into_section()?, sinks, &mut taken)));
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
    Some(Config { store: store?, kafka, rabbitmq, http, inboxes, purge, outbox, webhooks, sweeps })
}

/// The tables of an array of tables.
fn items<'c, 'a>(root: &mut Section<'c, 'a>, key: &'static str, expected: &str) -> Vec<Entry<'c, 'a>> {
    root.optional(key).and_then(|entry| entry.into_items(expected)).unwrap_or_default()
}
