//! The relay of the configuration.

use oncebox_config::Config;
use oncebox_core::outbox::{ByEvent, Relay, RelaySettings};
use oncebox_core::store::OutboxAdmin;
use oncebox_kafka::Kafka;
use oncebox_webhook::Webhook;

use crate::load;

/// Where events go: each `[[webhook]]` for its topics, `[kafka]` for the rest.
#[derive(Clone)]
pub(crate) struct Sinks {
    settings: RelaySettings,
    webhooks: Vec<(String, ByEvent<Webhook>)>,
    kafka: Option<Kafka>,
}

impl Sinks {
    /// The sinks of the configuration, if it has a relay, or what is wrong with them.
    pub(crate) fn new(config: &Config, kafka: Option<&Kafka>) -> Result<Option<Self>, Vec<String>> {
        if !config.outbox.relay {
            return Ok(None);
        }
        let (mut webhooks, mut problems) = (Vec::new(), Vec::new());
        for (nth, webhook) in config.webhooks.iter().enumerate() {
            match load::webhook(webhook) {
                Ok(sink) => webhooks.extend(webhook.topics.iter().map(|topic| (topic.clone(), sink.clone()))),
                Err(e) => problems.push(format!("webhook[{nth}] ({}): {e}", webhook.url.origin())),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Some(Self { settings: load::relay_settings(&config.outbox), webhooks, kafka: kafka.cloned() }))
    }

    /// A relay that publishes the events of this store.
    pub(crate) fn relay<S: OutboxAdmin>(&self, store: S) -> Relay<S> {
        let relay = Relay::new(store).settings(self.settings.clone());
        let relay =
            self.webhooks.iter().fold(relay, |relay, (topics, sink)| relay.route(topics, sink.clone()));
        match &self.kafka {
            Some(kafka) => relay.sink(kafka.sink()),
            None => relay,
        }
    }
}
