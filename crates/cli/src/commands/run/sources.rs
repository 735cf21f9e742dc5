//! Where the inboxes of the configuration read from.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use oncebox_config::{Config, HttpMode, InboxConfig, KafkaInbox, SourceConfig};
use oncebox_core::inbox::Worker;
use oncebox_core::monitor::Monitor;
use oncebox_core::names::ConsumerName;
use oncebox_core::outbox::LocalQueue;
use oncebox_core::store::OutboxAdmin;
use oncebox_http::HttpSource;
use oncebox_kafka::Kafka;
use oncebox_rabbitmq::{Rabbitmq, RabbitmqSource};
use tokio_util::sync::CancellationToken;

use super::retention;
use crate::exit::Failure;
use crate::load;

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
    kafka: Option<Kafka>,
    rabbitmq: Option<Rabbitmq>,
    doors: &'a Doors,
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
}

impl<'a> Sources<'a> {
    pub(super) fn new(config: &Config, doors: &'a Doors) -> Result<Self, Failure> {
        let rabbitmq = config.rabbitmq.as_ref().map(load::rabbitmq).transpose();
        Ok(Self {
            kafka: config.kafka.as_ref().map(load::kafka),
            rabbitmq: rabbitmq.map_err(|e| Failure::config(format!("rabbitmq.url: {e}")))?,
            doors,
        })
    }

    pub(super) fn kafka(&self) -> Option<&Kafka> {
        self.kafka.as_ref()
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
                let kafka = self.kafka.clone().ok_or_else(|| missing("[kafka]"))?;
                Ok(InboxSource::Kafka(Box::new(KafkaTopics {
                    kafka,
                    inbox: inbox.clone(),
                    read: read.clone(),
                })))
            }
            SourceConfig::Rabbitmq(read) => {
                let rabbitmq = self.rabbitmq.as_ref().ok_or_else(|| missing("[rabbitmq]"))?;
                let source = load::rabbitmq_source(rabbitmq, read, &inbox.identity)
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
                let KafkaTopics { kafka, inbox, read } = *topics;
                if retention::allows_start(&kafka, &inbox, &read, &monitor, &stop).await {
                    worker.serve(kafka.source(&read.topics).group(&read.group), stop).await;
                }
            }
            Self::Rabbitmq(source) => worker.serve(source, stop).await,
            Self::Http(source) => worker.serve(source, stop).await,
            Self::Accepted(source, queue) => worker.serve(source.through(queue), stop).await,
        }
    }
}
