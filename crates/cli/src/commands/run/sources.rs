//! Where the inboxes of the configuration read from.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Router;
use oncebox_config::{Config, HttpMode, InboxConfig, KafkaInbox, RetentionCheck, SourceConfig};
use oncebox_core::inbox::Worker;
use oncebox_core::monitor::Monitor;
use oncebox_core::names::ConsumerName;
use oncebox_core::outbox::LocalQueue;
use oncebox_core::store::OutboxAdmin;
use oncebox_http::HttpSource;
use oncebox_kafka::Kafka;
use oncebox_rabbitmq::{Rabbitmq, RabbitmqSource};
use tokio_util::sync::CancellationToken;

use super::retention::{self, Refusal};
use crate::cluster;
use crate::exit::Failure;
use crate::load::{self, Way};

/// The doors of the inboxes that take requests. Open before the database is there: who comes then is told to come again.
pub(super) struct Doors {
    sources: HashMap<ConsumerName, Arc<HttpSource>>,
    router: Router,
}

impl Doors {
    pub(super) fn new(config: &Config) -> Result<Self, Failure> {
        let (mut sources, mut router) = (HashMap::new(), Router::new());
        for inbox in &config.inboxes {
            let SourceConfig::Http(http) = &inbox.source else { continue };
            let (routes, source) = load::http_inbox(http)
                .map_err(|e| Failure::config(format!("inbox {} (http): {e}", inbox.consumer)))?;
            router = router.merge(routes);
            sources.insert(inbox.consumer.clone(), Arc::new(source));
        }
        Ok(Self { sources, router })
    }

    pub(super) fn router(&self) -> Router {
        self.router.clone()
    }
}

/// What inboxes read from.
pub(super) struct Sources<'a> {
    kafka: BTreeMap<Way<'a>, Kafka>,
    rabbitmq: Option<Rabbitmq>,
    doors: &'a Doors,
    /// How many bytes the client of each inbox may fetch ahead.
    fetch_ahead: usize,
}

/// Where one inbox reads from.
#[derive(Clone)]
pub(super) enum InboxSource<S> {
    Kafka(Box<KafkaTopics>),
    Rabbitmq(RabbitmqSource),
    Http(Arc<HttpSource>),
    /// What it has accepted before.
    Accepted(Arc<HttpSource>, LocalQueue<S>),
}

/// Topics, and what their retention is compared with.
#[derive(Clone)]
pub(super) struct KafkaTopics {
    kafka: Kafka,
    inbox: InboxConfig,
    read: KafkaInbox,
    fetch_ahead: usize,
}

impl<'a> Sources<'a> {
    pub(super) fn new(config: &'a Config, doors: &'a Doors, fetch_ahead: usize) -> Result<Self, Failure> {
        let mut kafka = BTreeMap::new();
        let read = config.inboxes.iter().filter_map(|inbox| inbox.source.kafka()).map(Way::of);
        let relayed = Some(Way::of_relay(&config.outbox)).filter(|way| {
            config.outbox.relay && config.outbox.exchange.is_none() && way.leads_somewhere(config)
        });
        for way in read.chain(relayed) {
            if let std::collections::btree_map::Entry::Vacant(new) = kafka.entry(way) {
                let client = way.kafka(config)?;
                // What librdkafka does not take, a file that is not there say, it would not take later either.
                let refused =
                    |e| Failure::config(format!("{}: {}", way.heading(), cluster::failure(&e).text));
                client.try_out().map_err(refused)?;
                new.insert(client);
            }
        }
        let rabbitmq = config.rabbitmq.as_ref().map(load::rabbitmq).transpose();
        Ok(Self {
            kafka,
            rabbitmq: rabbitmq.map_err(|e| Failure::config(format!("rabbitmq.url: {e}")))?,
            doors,
            fetch_ahead,
        })
    }

    /// Where events go, if they go to Kafka.
    pub(super) fn kafka_of_relay(&self, config: &'a Config) -> Option<&Kafka> {
        self.kafka.get(&Way::of_relay(&config.outbox))
    }

    pub(super) fn rabbitmq(&self) -> Option<&Rabbitmq> {
        self.rabbitmq.as_ref()
    }

    pub(super) fn of<S: OutboxAdmin>(
        &self,
        inbox: &InboxConfig,
        accepted: &[LocalQueue<S>],
    ) -> Result<InboxSource<S>, Failure> {
        let missing = |section: &str| Failure::config(format!("{section} is missing"));
        match &inbox.source {
            SourceConfig::Kafka(read) => {
                let kafka = self.kafka.get(&Way::of(read)).cloned().ok_or_else(|| missing("[kafka]"))?;
                Ok(InboxSource::Kafka(Box::new(KafkaTopics {
                    kafka,
                    inbox: inbox.clone(),
                    read: read.clone(),
                    fetch_ahead: self.fetch_ahead,
                })))
            }
            SourceConfig::Rabbitmq(read) => {
                let rabbitmq = self.rabbitmq.as_ref().ok_or_else(|| missing("[rabbitmq]"))?;
                let source = load::rabbitmq_source(rabbitmq, read, inbox)
                    .map_err(|e| Failure::config(format!("inbox {}: {e}", inbox.consumer)))?;
                Ok(InboxSource::Rabbitmq(source))
            }
            SourceConfig::Http(_) => {
                let source = self.doors.sources.get(&inbox.consumer).ok_or_else(|| missing("[http]"))?;
                let source = Arc::clone(source);
                let queue = accepted.iter().find(|queue| *queue.consumer() == inbox.consumer);
                Ok(match queue {
                    Some(queue) => InboxSource::Accepted(source, queue.clone()),
                    None => InboxSource::Http(source),
                })
            }
        }
    }
}

/// The queues of the inboxes that accept.
pub(super) fn accepted<S: OutboxAdmin>(config: &Config, store: &S) -> Vec<LocalQueue<S>> {
    let accepting = config.inboxes.iter().filter_map(|inbox| match &inbox.source {
        SourceConfig::Http(http) if http.mode == HttpMode::Accept => {
            Some(LocalQueue::new(store.clone(), inbox.consumer.clone(), http.path.as_str()))
        }
        _ => None,
    });
    accepting.collect()
}

impl<S: OutboxAdmin> InboxSource<S> {
    /// Lets the worker read from here until `stop`.
    pub(super) async fn serve(self, worker: Worker<S>, monitor: Monitor, stop: CancellationToken) {
        match self {
            Self::Kafka(topics) => {
                let KafkaTopics { kafka, inbox, read, fetch_ahead } = *topics;
                let source = kafka.source(&read.topics).group(&read.group).fetch_ahead(fetch_ahead);
                if read.retention_check == RetentionCheck::Warn {
                    retention::warn_of_all(&kafka, &inbox, &read, &stop);
                    return worker.serve(source, stop).await;
                }
                let refusal = Refusal::new(&kafka, &inbox, &read, &monitor);
                if refusal.allows_start(&stop).await {
                    let source = source.gate(refusal.gate());
                    tokio::join!(worker.serve(source, stop.clone()), refusal.watch(&stop));
                }
            }
            Self::Rabbitmq(source) => worker.serve(source, stop).await,
            Self::Http(source) => worker.serve(source, stop).await,
            Self::Accepted(source, queue) => worker.serve(source.through(queue), stop).await,
        }
    }
}
