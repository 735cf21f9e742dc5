//! `oncebox run`: everything the configuration declares, until SIGTERM or SIGINT.

mod relay;
mod retention;
mod supervise;
mod sweeps;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::counter;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use oncebox_core::config::Config;
use oncebox_core::{Inbox, LoopHandle, Monitor, RetryPolicy, describe, purge_loop, purge_published_loop};
use oncebox_kafka::Kafka;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::http::{self, Shown};
use crate::load;
use crate::stores::{self, SqlStore, WithStore, with_store};
use relay::Sinks;
use watch::OldestEvent;

/// How often published events and swept rows whose time is over are removed, where no relay does it.
const HOUSEKEEPING: Duration = Duration::from_secs(60 * 60);
/// How long a shutdown may take before the process ends anyway; what was in flight is then delivered again.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(45);

pub(crate) async fn run(file: &Path) -> CommandResult {
    let config = load::config(file)?;
    if config.inboxes.is_empty() && config.sweeps.is_empty() && !config.outbox.relay {
        return Err(Failure::config(format!(
            "{} declares nothing to run: add an [[inbox]], a [[sweep]], or `relay = true` under [outbox]",
            file.display()
        )));
    }
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let monitor = Monitor::default();
    let ready = Arc::new(AtomicBool::new(false));
    let metrics = install_metrics()?;
    if let Some(http) = &config.http {
        let shown = Shown { monitor: monitor.clone(), ready: Arc::clone(&ready), metrics };
        http::serve(http.listen, shown, stop.clone())
            .await
            .map_err(|e| Failure::config(format!("cannot listen on {} (http.listen): {e}", http.listen)))?;
    }

    let setup = monitor.register("setup", "");
    let backoff = RetryPolicy { backoff_max: Duration::from_secs(10), ..RetryPolicy::default() };
    let mut tries = 0;
    loop {
        let daemon = Daemon { config: &config, stop: &stop, monitor: &monitor, ready: &ready, setup: &setup };
        match with_store(&config.store, daemon).await {
            // The database is away: stay up, say so, try again.
            Err(failure) if failure.exit == Exit::Unreachable && !stop.is_cancelled() => {
                tries += 1;
                setup.failed(&failure.text);
                warn!(reason = failure.text, "cannot start yet; trying again");
                tokio::select! {
                    () = tokio::time::sleep(backoff.delay(tries)) => {}
                    () = stop.cancelled() => return Ok(Answer::Yes),
                }
            }
            other => return other,
        }
    }
}

struct Daemon<'a> {
    config: &'a Config,
    stop: &'a CancellationToken,
    monitor: &'a Monitor,
    ready: &'a AtomicBool,
    setup: &'a LoopHandle,
}

impl WithStore for Daemon<'_> {
    type Output = CommandResult;

    async fn run<S: SqlStore>(self, store: S) -> CommandResult {
        let Self { config, stop, monitor, ready, setup } = self;
        for migration in store.migrate().await? {
            info!(version = migration.version, name = migration.name, "migration applied");
        }
        store.arrange(&config.store).await?;
        let kafka = config.kafka.as_ref().map(load::kafka);
        let mut workers = Vec::new();
        let mut problems = Vec::new();
        if let Some(Err(e)) = kafka.as_ref().map(Kafka::validate) {
            problems.push(format!("kafka.properties: {e}"));
        }
        for inbox in &config.inboxes {
            match store.prepare(&inbox.handler, inbox.payload).await {
                Ok(handler) => workers.push((inbox, handler)),
                Err(e) if e.class == oncebox_core::ErrorClass::Transient => return Err(e.into()),
                Err(e) => problems.push(format!("inbox {}: {}", inbox.consumer, describe(&e))),
            }
        }
        problems.extend(sweeps::problems(&store, &config.sweeps).await?);
        let relay = Sinks::new(config, kafka.as_ref()).unwrap_or_else(|found| {
            problems.extend(found);
            None
        });
        if !problems.is_empty() {
            return Err(Failure::config(problems.join("\n")));
        }

        let mut tasks = JoinSet::new();
        for (inbox, handler) in workers {
            let Some(kafka) = kafka.clone() else {
                return Err(Failure::config("[kafka] is missing"));
            };
            let worker = Inbox::new(inbox.consumer.as_str(), store.clone())
                .map_err(|e| Failure::config(e.to_string()))?
                .settings(load::settings(config, inbox))
                .monitor(monitor.clone())
                .apply(handler);
            let source = kafka.source(&inbox.topics).group(&inbox.group);
            let (inbox, stop, monitor) = (inbox.clone(), stop.clone(), monitor.clone());
            tasks.spawn(async move {
                if retention::allows_start(&kafka, &inbox, &monitor, &stop).await {
                    worker.serve(source, stop).await;
                }
            });
        }
        match relay {
            Some(sinks) => tasks.spawn(sinks.serve(store.clone(), monitor.clone(), stop.clone())),
            None => tasks.spawn(purge_published_loop(
                store.clone(),
                config.outbox.keep,
                HOUSEKEEPING,
                monitor.clone(),
                stop.clone(),
            )),
        };
        sweeps::start(&mut tasks, &store, &config.sweeps, monitor, stop);
        let retention = stores::retention(&config.inboxes);
        tasks.spawn(purge_loop(store.clone(), retention, config.purge.every, monitor.clone(), stop.clone()));
        let oldest = if config.outbox.relay {
            OldestEvent::limited(monitor, config.outbox.max_age)
        } else {
            OldestEvent::unlimited()
        };
        tasks.spawn(watch::watch(store, oldest, monitor.clone(), stop.clone()));
        setup.succeeded();
        setup.idle();
        ready.store(true, Ordering::Relaxed);

        stop.cancelled().await;
        ready.store(false, Ordering::Relaxed);
        info!("stopping: ending what is in flight");
        let drained = tokio::time::timeout(SHUTDOWN_LIMIT, async {
            while let Some(ended) = tasks.join_next().await {
                if let Err(panic) = ended {
                    error!(%panic, "a task ended badly");
                }
            }
        });
        if drained.await.is_err() {
            warn!("not everything ended in time; what was in flight will be delivered again");
        }
        info!("stopped");
        Ok(Answer::Yes)
    }
}

/// Cancels the token at the first SIGTERM or SIGINT.
fn stop_on_signal(stop: CancellationToken) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}

fn install_metrics() -> Result<PrometheusHandle, Failure> {
    let batch = [1.0, 5.0, 10.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0];
    let seconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("oncebox_batch_size".to_owned()), &batch)
        .and_then(|b| {
            b.set_buckets_for_metric(Matcher::Full("oncebox_transaction_seconds".to_owned()), &seconds)
        })
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|e| Failure::data(format!("cannot set up metrics: {e}")))?;
    // Zero before the first event, and also where no relay runs.
    counter!("oncebox_relay_published_total").absolute(0);
    Ok(handle)
}
