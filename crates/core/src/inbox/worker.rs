//! The Rust interface: describe an inbox, give it a handler, run it.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::Engine;
use super::adapters::{AnyApply, AsBatch, ByMessage, ByPayload, OneByOne};
use super::handler::{Apply, BatchFn, EachFn, EachJsonFn, Failure, Handler};
use super::identity::Selector;
use super::partition::Partition;
use super::policy::{BatchBounds, OnFailure, RetryPolicy, StalePolicy, StartPolicy};
use super::purge::purge_loop;
use super::replay::{Replay, Replayed, replay};
use super::settings::Settings;
use crate::backoff;
use crate::error::{Error, describe};
use crate::message::Message;
use crate::monitor::Monitor;
use crate::names::ConsumerName;
use crate::source::{Intake, Source, Stream};
use crate::store::{InboxStore, Retention, Store};

/// An inbox that is being described. Ends with one of [`Inbox::each`], [`Inbox::each_json`], [`Inbox::batch`] or
/// [`Inbox::with`].
#[derive(Debug, Clone)]
pub struct Inbox<S> {
    store: S,
    consumer: ConsumerName,
    settings: Settings,
    monitor: Monitor,
}

impl<S: Store> Inbox<S> {
    /// An inbox of this consumer in this store. The name is part of the dedupe key: choose it once.
    pub fn new(consumer: impl Into<String>, store: S) -> Result<Self, Error> {
        Ok(Self {
            store,
            consumer: ConsumerName::new(consumer)?,
            settings: Settings::default(),
            monitor: Monitor::default(),
        })
    }

    /// The store it was given.
    pub fn store(&self) -> &S {
        &self.store
    }

    pub(crate) fn consumer(&self) -> &ConsumerName {
        &self.consumer
    }

    /// Where the stable id of a message comes from. Default: the message key.
    #[must_use]
    pub fn id(mut self, selector: Selector) -> Self {
        self.settings.identity.id = selector;
        self
    }

    /// Where the tenant of a message comes from. Default: no tenants.
    #[must_use]
    pub fn tenant(mut self, selector: Selector) -> Self {
        self.settings.identity.tenant = Some(selector);
        self
    }

    /// Where to begin when no position is known. Default: the oldest message.
    #[must_use]
    pub fn start(mut self, policy: StartPolicy) -> Self {
        self.settings.start = policy;
        self
    }

    /// How large one transaction may grow.
    #[must_use]
    pub fn batch_bounds(mut self, bounds: BatchBounds) -> Self {
        self.settings.batch = bounds;
        self
    }

    /// How many lanes each partition has; the keys are hashed onto them.
    #[must_use]
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.settings.lanes = lanes.max(1);
        self
    }

    /// How often a failing message is tried.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// What happens to a message that used up its attempts. Default: park it.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.settings.on_failure = policy;
        self
    }

    /// What happens to a message older than the purged receipts. Default: apply it.
    #[must_use]
    pub fn stale(mut self, policy: StalePolicy) -> Self {
        self.settings.stale = policy;
        self
    }

    /// How long receipts are kept. Must be longer than any message can come back.
    #[must_use]
    pub fn retention(mut self, keep: Duration) -> Self {
        self.settings.retention = keep;
        self
    }

    /// All settings at once.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Where the loops report how they are.
    #[must_use]
    pub fn monitor(mut self, monitor: Monitor) -> Self {
        self.monitor = monitor;
        self
    }

    /// A handler for each message: `async fn(&mut Conn, &Message) -> oncebox::Result`, or an async closure.
    #[must_use]
    pub fn each<F: EachFn<S>>(self, handler: F) -> Worker<S> {
        self.apply(OneByOne(ByMessage(handler)))
    }

    /// A handler for the JSON payload of each message: `async fn(&mut Conn, T) -> oncebox::Result`. A payload that is not
    /// such JSON is rejected.
    #[must_use]
    pub fn each_json<F, T>(self, handler: F) -> Worker<S>
    where
        F: EachJsonFn<S, T>,
        T: DeserializeOwned + Send + 'static,
    {
        self.apply(OneByOne(ByPayload::new(handler)))
    }

    /// A handler for the fresh messages of a batch: `async fn(&mut Conn, &[Message]) -> oncebox::Result`.
    #[must_use]
    pub fn batch<F: BatchFn<S>>(self, handler: F) -> Worker<S> {
        self.apply(AsBatch(handler))
    }

    /// A handler that is a type of its own.
    #[must_use]
    pub fn with<H: Handler<S>>(self, handler: H) -> Worker<S> {
        self.apply(OneByOne(handler))
    }

    /// A handler that applies whole batches and can say which message of a batch failed: what the methods above end in.
    #[must_use]
    pub fn apply<A: Apply<S>>(self, handler: A) -> Worker<S> {
        let apply = AnyApply::new(handler);
        Worker { engine: Engine::new(self.store, apply, self.consumer, self.settings, self.monitor) }
    }
}

/// An inbox with its handler, ready to run.
pub struct Worker<S: Store> {
    engine: Arc<Engine<S>>,
}

impl<S: Store> std::fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("consumer", &self.engine.consumer).finish_non_exhaustive()
    }
}

impl<S: InboxStore> Worker<S> {
    /// Applies what the source delivers until `shutdown` completes; then ends the transactions in flight, acknowledges
    /// what is done and returns. Purges old receipts meanwhile.
    pub async fn run(
        self,
        source: impl Source,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), Error> {
        let stop = CancellationToken::new();
        let retention =
            vec![Retention { consumer: self.engine.consumer.clone(), keep: self.engine.settings.retention }];
        let mut purge = tokio::spawn(purge_loop(
            self.engine.store.clone(),
            retention,
            self.engine.settings.purge_every,
            self.engine.settings.clock,
            self.engine.monitor.clone(),
            stop.clone(),
        ));
        let mut serving = tokio::spawn(self.serve(source, stop.clone()));
        // Before the stop only a panic ends one of them, and half an inbox is none: the other one ends too.
        let early = tokio::select! {
            biased;
            ended = &mut serving => Some(ended),
            ended = &mut purge => Some(ended),
            () = shutdown => None,
        };
        stop.cancel();
        let panicked = |source| Error::Panic { what: "worker", source };
        if let Some(ended) = early {
            return ended.map_err(panicked);
        }
        serving.await.map_err(panicked)?;
        purge.await.map_err(panicked)
    }

    /// Runs the handler on a dead letter of this consumer and removes it, in one transaction. Under
    /// [`OnFailure::ParkKey`] a letter does not pass an earlier one of its key.
    pub async fn replay(&self, number: i64) -> Result<Replayed, Error> {
        let Engine { store, apply, consumer, settings, .. } = &*self.engine;
        let in_order = settings.on_failure == OnFailure::ParkKey;
        let how = Replay { consumer, identity: &settings.identity, in_order };
        Ok(replay(store, apply, how, number).await?)
    }

    /// Applies what the source delivers until `stop`, and nothing else: for a process that purges on its own. A source
    /// that ends early is started again with backoff.
    pub async fn serve(self, source: impl Source, stop: CancellationToken) {
        let source = Arc::new(source);
        let health = self.engine.monitor.register(format!("source:{}", self.engine.consumer), "");
        health.idle();
        let mut ended_early = 0;
        while !stop.is_cancelled() {
            let running = {
                let (source, intake, stop) = (Arc::clone(&source), self.intake(), stop.clone());
                tokio::spawn(async move { source.run(intake, stop).await })
            };
            let reason = match running.await {
                Ok(Ok(())) if stop.is_cancelled() => break,
                Ok(Ok(())) => "the source ended without being told to".to_owned(),
                Ok(Err(e)) => describe(e.as_ref()),
                Err(panic) => format!("the source panicked: {panic}"),
            };
            ended_early += 1;
            health.failed(&reason);
            error!(consumer = %self.engine.consumer, reason, "the source ended; starting it again");
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(backoff::SOURCE.delay(ended_early)) => {}
            }
            health.idle();
        }
        info!(consumer = %self.engine.consumer, "stopped");
    }

    /// The store it runs on.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.engine.store
    }

    /// The consumer whose messages it applies.
    #[must_use]
    pub fn consumer(&self) -> &ConsumerName {
        &self.engine.consumer
    }

    /// How it was set up.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.engine.settings
    }

    /// The handler alone, in a transaction of somebody else's: how a test kit puts itself between the engine and the handler.
    #[doc(hidden)]
    pub async fn handle(&self, conn: &mut S::Conn, fresh: &[Message]) -> Result<(), Failure> {
        self.engine.apply.apply(conn, fresh).await
    }

    /// What a source needs to deliver to this inbox: for sources of your own.
    #[must_use]
    pub fn intake(&self) -> Intake {
        let engine = Arc::clone(&self.engine);
        let runtime = tokio::runtime::Handle::current();
        Intake {
            consumer: self.engine.consumer.as_str().into(),
            start: self.engine.settings.start,
            monitor: self.engine.monitor.clone(),
            opener: Arc::new(move |open| {
                let partition = Partition::new(engine.consumer.clone(), open, &engine.settings);
                let partition = Arc::new(partition);
                runtime.spawn(Arc::clone(&engine).run_partition(Arc::clone(&partition)));
                Stream(partition)
            }),
        }
    }
}
