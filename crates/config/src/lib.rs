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
mod reader;
mod service;
mod store;
mod surroundings;
mod sweep;
#[cfg(test)]
mod tests;
mod units;
mod webhook;

use reader::{Context, Entry, Section};

pub use handler::HandlerConfig;
pub use inbox::{InboxConfig, RetentionCheck};
pub use kafka::KafkaConfig;
pub use operations::Operations;
pub use outbox::OutboxConfig;
pub use problem::{Problem, Problems};
pub use service::{HttpConfig, PurgeConfig};
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
    /// `[kafka]`: where messages come from and events go. Present when there is an inbox, or a relay without webhooks.
    pub kafka: Option<KafkaConfig>,
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
    let http = root.optional("http").and_then(Entry::into_section).map(service::read_http);
    let purge = root.or("purge", PurgeConfig::default(), |e| e.into_section().map(service::read_purge));
    let inboxes = items(&mut root, "inbox", "[[inbox]], with two brackets");
    let webhooks = items(&mut root, "webhook", "[[webhook]], with two brackets");
    let sweeps = items(&mut root, "sweep", "[[sweep]], with two brackets");
    let has_sink = has_kafka || !webhooks.is_empty();
    let outbox =
        root.or("outbox", OutboxConfig::default(), |e| Some(outbox::read(e.into_section()?, has_sink)));
    if let Some(first) = inboxes.first().filter(|_| !has_kafka) {
        first.report("an inbox needs brokers to read from", "add [kafka] with `brokers`");
    }
    if let Some(first) = webhooks.first().filter(|_| !outbox.relay) {
        first.report("a webhook gets its events from the relay", "write `relay = true` under [outbox]");
    }
    let kind = store.as_ref().map(|store| store.kind);
    let adopt = store.as_ref().and_then(|store| store.adopt.as_ref());
    if let Some(adopt) = adopt {
        adopt::check_consumers(adopt, &inboxes);
    }
    let mut taken = inbox::Taken::default();
    let inboxes = inboxes
        .into_iter()
        .filter_map(|entry| inbox::read(entry.into_section()?, kind, adopt, &mut taken))
        .collect();
    let mut taken = Vec::new();
    let webhooks =
        webhooks.into_iter().filter_map(|entry| webhook::read(entry.into_section()?, &mut taken)).collect();
    let mut taken = Vec::new();
    let sweeps =
        sweeps.into_iter().filter_map(|entry| sweep::read(entry.into_section()?, kind, &mut taken)).collect();
    root.finish();
    Some(Config { store: store?, kafka, http, inboxes, purge, outbox, webhooks, sweeps })
}

/// The tables of an array of tables.
fn items<'c, 'a>(root: &mut Section<'c, 'a>, key: &'static str, expected: &str) -> Vec<Entry<'c, 'a>> {
    root.optional(key).and_then(|entry| entry.into_items(expected)).unwrap_or_default()
}
