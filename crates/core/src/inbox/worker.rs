//! The Rust interface, second half: an inbox with its handler, run on a source.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::Engine;
use super::handler::{Apply, Failure};
use super::partition::Partition;
use super::policy::OnFailure;
use super::purge::purge_loop;
use super::replay::{Replay, Replayed, replay};
use super::settings::Settings;
use crate::backoff;
use crate::error::{Error, describe};
use crate::live::Live;
use crate::message::Message;
use crate::monitor::LoopHandle;
use crate::names::ConsumerName;
use crate::source::{Intake, Source, Stream};
use crate::store::{InboxStore, Retention, Store};

/// A source that has run for so long has overcome what ended it before. Shorter than what counts as a stall.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// An inbox with its handler, ready to run. Made by [`Inbox::each`](super::Inbox::each) and its neighbours.
///
/// ```
/// use std::time::Duration;
///
/// use oncebox::Worker;
/// use oncebox::source::Source;
/// use oncebox::sqlite::SqliteStore;
///
/// async fn for_a_minute(worker: Worker<SqliteStore>, source: impl Source) -> oncebox::Result {
///     // A service waits for a signal: `tokio::signal::ctrl_c()`.
///     let shutdown = tokio::time::sleep(Duration::from_secs(60));
///     worker.run(source, shutdown).await?;
///     Ok(())
/// }
/// ```
pub struct Worker<S: Store> {
    pub(super) engine: Arc<Engine<S>>,
}

impl<S: Store> std::fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("consumer", &self.engine.consumer).finish_non_exhaustive()
    }
}

impl<S: InboxStore> Worker<S> {
    /// Applies what the source delivers until `shutdown` completes; then ends the transactions in flight, acknowledges
    /// what is settled and returns. Purges old receipts meanwhile.
    ///
    /// A database, a broker or a source that is away does not end it: it tries again, and the
    /// [`Monitor`](crate::monitor::Monitor) says so.
    ///
    /// # Errors
    /// Only `panic`, and only of oncebox itself. A handler that panics fails its message; a source that panics is started
    /// again.
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
            Live::new(retention),
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
    ///
    /// ```
    /// use oncebox::sqlite::SqliteStore;
    /// use oncebox::store::{DeadFilter, DeadLetters};
    /// use oncebox::{Replayed, Worker};
    ///
    /// async fn replay_all(store: &SqliteStore, worker: &Worker<SqliteStore>) -> oncebox::Result {
    ///     let first = DeadFilter { limit: 100, ..DeadFilter::default() };
    ///     for letter in store.dead_letters(&first).await? {
    ///         if let Replayed::Failed(reason) = worker.replay(letter.number).await? {
    ///             println!("{} fails still: {reason}", letter.number);
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn replay(&self, number: i64) -> Result<Replayed, Error> {
        let Engine { store, apply, consumer, settings, .. } = &*self.engine;
        let in_order = settings.on_failure == OnFailure::ParkKey;
        let _connection = self.engine.connections.take().await;
        let how = Replay { consumer, identity: &settings.identity, in_order };
        Ok(replay(store, apply, how, number).await?)
    }

    /// Applies what the source delivers until `stop`, and nothing else: for a process that purges on its own. A source
    /// that ends early is started again with backoff.
    pub async fn serve(self, source: impl Source, stop: CancellationToken) {
        let source = Arc::new(source);
        let health = self.source_health();
        let mut ended_early = 0;
        while !stop.is_cancelled() {
            let mut running = {
                let intake = self.intake_reporting_to(health.clone());
                let (source, stop) = (Arc::clone(&source), stop.clone());
                tokio::spawn(async move { source.run(intake, stop).await })
            };
            let ended = tokio::select! {
                biased;
                ended = &mut running => ended,
                () = tokio::time::sleep(RECOVERED_AFTER) => {
                    ended_early = 0;
                    health.idle();
                    running.await
                }
            };
            let reason = match ended {
                Ok(Ok(())) if stop.is_cancelled() => break,
                Ok(Ok(())) => "the source ended without being told to".to_owned(),
                Ok(Err(e)) => describe(e.as_ref()),
                Err(panic) => format!("the source panicked: {panic}"),
            };
            ended_early += 1;
            health.left_its_group();
            if health.failed(&reason) {
                error!(consumer = %self.engine.consumer, reason, "the source ended; starting it again");
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(backoff::SOURCE.delay(ended_early)) => {}
            }
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
        self.intake_reporting_to(self.source_health())
    }

    fn source_health(&self) -> LoopHandle {
        let health = self.engine.monitor.register(format!("source:{}", self.engine.consumer), "");
        health.idle();
        health
    }

    fn intake_reporting_to(&self, health: LoopHandle) -> Intake {
        let engine = Arc::clone(&self.engine);
        let runtime = tokio::runtime::Handle::current();
        let over = CancellationToken::new();
        runtime.spawn(Arc::clone(&engine).watch_pauses(over.clone()));
        // Held by the intake and by each of its partitions.
        let watched = Arc::new(over.drop_guard());
        Intake {
            consumer: self.engine.consumer.as_str().into(),
            settings: Arc::new(self.engine.settings.clone()),
            monitor: self.engine.monitor.clone(),
            health,
            filtered: self.engine.meters.filtered.clone(),
            opener: Arc::new(move |open| {
                let partition =
                    Partition::new(engine.consumer.clone(), open, &engine.settings, &engine.monitor);
                let partition = Arc::new(partition);
                let running = Arc::clone(&engine).run_partition(Arc::clone(&partition));
                let watched = Arc::clone(&watched);
                runtime.spawn(async move {
                    running.await;
                    drop(watched);
                });
                Stream(partition)
            }),
        }
    }
}
