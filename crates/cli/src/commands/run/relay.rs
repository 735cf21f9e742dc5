//! The relay of the configuration.

use std::sync::Arc;

use oncebox_config::Config;
use oncebox_core::outbox::{ByEvent, LocalQueue, Relay, RelaySettings};
use oncebox_core::store::OutboxAdmin;
use oncebox_kafka::Kafka;
use oncebox_rabbitmq::{Rabbitmq, RabbitmqSink};
use oncebox_webhook::Webhook;

use crate::load::{self, Shares};

/// Where events go: each `[[webhook]]` and each route for its topics, `[kafka]` or an exchange for the rest. Webhooks with
/// `copy` get theirs besides.
#[derive(Clone)]
pub(crate) struct Sinks {
    settings: RelaySettings,
    /// By topic.
    webhooks: Vec<(String, ByEvent<Webhook>)>,
    /// By name and topic.
    copies: Vec<(String, String, ByEvent<Webhook>)>,
    rabbitmq: Option<Arc<RabbitmqSink>>,
    /// The topics that go to RabbitMQ.
    routed: Vec<String>,
    rest: Rest,
}

/// What takes the events that nobody else takes.
#[derive(Clone)]
enum Rest {
    Kafka(Kafka),
    Rabbitmq,
    Nobody,
}

impl Sinks {
    /// The sinks of the configuration, if it has a relay, or what is wrong with them.
    pub(crate) fn new(
        config: &Config,
        shares: &Shares,
        kafka: Option<&Kafka>,
        rabbitmq: Option<&Rabbitmq>,
    ) -> Result<Option<Self>, Vec<String>> {
        if !config.outbox.relay {
            return Ok(None);
        }
        let (mut webhooks, mut copies, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        for (nth, webhook) in config.webhooks.iter().enumerate() {
            let topics = webhook.topics.iter().cloned();
            match (load::webhook(webhook), &webhook.name) {
                (Ok(sink), Some(name)) if webhook.copy => {
                    copies.extend(topics.map(|topic| (name.clone(), topic, sink.clone())));
                }
                (Ok(sink), _) => webhooks.extend(topics.map(|topic| (topic, sink.clone()))),
                (Err(e), _) => problems.push(format!("webhook[{nth}] ({}): {e}", webhook.url.origin())),
            }
        }
        let rabbitmq = match rabbitmq.map(|rabbitmq| load::rabbitmq_sink(rabbitmq, &config.outbox)) {
            Some(Ok(sink)) => sink.map(Arc::new),
            Some(Err(e)) => {
                problems.push(format!("outbox: {e}"));
                None
            }
            None => None,
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let rest = match kafka {
            _ if config.outbox.exchange.is_some() => Rest::Rabbitmq,
            Some(kafka) => Rest::Kafka(kafka.clone()),
            None => Rest::Nobody,
        };
        let routed = config.outbox.routes.iter().flat_map(|route| route.topics.clone()).collect();
        let mut settings = load::relay_settings(&config.outbox);
        shares.give_relay(&mut settings);
        Ok(Some(Self { settings, webhooks, copies, rabbitmq, routed, rest }))
    }

    /// A relay that publishes the events of this store, and brings what was accepted to its inbox.
    pub(crate) fn relay<S: OutboxAdmin>(&self, store: S, accepted: &[LocalQueue<S>]) -> Relay<S> {
        let relay = Relay::new(store).settings(self.settings.clone());
        let relay = accepted.iter().fold(relay, |relay, queue| relay.route(queue.topic(), queue.sink()));
        let relay =
            self.webhooks.iter().fold(relay, |relay, (topics, sink)| relay.route(topics, sink.clone()));
        let mut relay = self
            .copies
            .iter()
            .fold(relay, |relay, (name, topics, sink)| relay.copy(name, topics, sink.clone()));
        if let Some(rabbitmq) = &self.rabbitmq {
            relay = self.routed.iter().fold(relay, |relay, topics| relay.route(topics, Arc::clone(rabbitmq)));
        }
        match (&self.rest, &self.rabbitmq) {
            (Rest::Kafka(kafka), _) => relay.sink(kafka.sink()),
            (Rest::Rabbitmq, Some(rabbitmq)) => relay.sink(Arc::clone(rabbitmq)),
            _ => relay,
        }
    }
}
