//! `oncebox run`: everything the configuration declares, until SIGTERM or SIGINT.

mod exporter;
mod relay;
mod retention;
mod shared;
mod sources;
mod supervise;
mod sweeps;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncebox_config::Config;
use oncebox_core::backoff;
use oncebox_core::clock::Clock;
use oncebox_core::error::describe;
use oncebox_core::inbox::{Inbox, purge_loop};
use oncebox_core::monitor::{LoopHandle, Monitor};
use oncebox_core::outbox::purge_published_loop;
use oncebox_core::store::FindingLevel;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::exit::{Answer, CommandResult, Exit, Failure, is_unreachable};
use crate::http::{self, Shown};
use crate::load;
use crate::stores::{self, ConfiguredStore, WithStore, with_store};
use relay::Sinks;
use shared::Shared;
use sources::{Doors, Sources};
use supervise::Loops;
use watch::OldestEvent;

/// How often published events and swept rows whose time is over are removed, where no relay does it.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(60 * 60);
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
    let doors = Doors::new(&config)?;
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let monitor = Monitor::default();
    let ready = Arc::new(AtomicBool::new(false));
    let metrics = exporter::install()?;
    let mut loops = Loops::new(&monitor, &stop);
    if let Some(http) = &config.http {
        let shown = Shown { monitor: monitor.clone(), ready: Arc::clone(&ready), metrics };
        let listener = http::listen(http.listen)
            .map_err(|e| Failure::config(format!("cannot listen on {} (http.listen): {e}", http.listen)))?;
        let inboxes = doors.router();
        loops.keep("http", move |_, stop| {
            http::serve(Arc::clone(&listener), shown.clone(), inboxes.clone(), stop)
        });
    }

    let setup = monitor.register("setup", "");
    let mut tries = 0;
    loop {
        let daemon = Daemon {
            config: &config,
            doors: &doors,
            stop: &stop,
            monitor: &monitor,
            ready: &ready,
            setup: &setup,
        };
        match with_store(&config.store, daemon).await {
            // The database is away: stay up, say so, try again.
            Err(failure) if failure.exit == Exit::Unreachable && !stop.is_cancelled() => {
                tries += 1;
                setup.failed(&failure.text);
                warn!(reason = failure.text, "cannot start yet; trying again");
                tokio::select! {
                    () = tokio::time::sleep(backoff::SETUP.delay(tries)) => {}
                    () = stop.cancelled() => return Ok(Answer::Yes),
                }
            }
            other => return other,
        }
    }
}

struct Daemon<'a> {
    config: &'a Config,
    doors: &'a Doors,
    stop: &'a CancellationToken,
    monitor: &'a Monitor,
    ready: &'a AtomicBool,
    setup: &'a LoopHandle,
}

impl WithStore for Daemon<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        let Self { config, doors, stop, monitor, ready, setup } = self;
        for migration in store.migrate().await? {
            info!(version = migration.version, name = migration.name, "migration applied");
        }
        store.arrange(&config.store).await?;
        let sources = Sources::new(config, doors)?;
        let mut workers = Vec::new();
        let mut problems = Vec::new();
        for finding in stores::check_adopted(&store, &config.inboxes).await? {
            let text = format!("{}: {}", finding.subject, finding.detail);
            match finding.level {
                FindingLevel::Ok => info!("{text}"),
                FindingLevel::Warning => warn!("{text}"),
                FindingLevel::Error => problems.push(text),
            }
        }
        for inbox in &config.inboxes {
            match store.handler(inbox).await {
                Ok(handler) => workers.push((inbox, handler)),
                Err(e) if is_unreachable(&e) => return Err(e.into()),
                Err(e) => problems.push(format!("inbox {}: {}", inbox.consumer, describe(&e))),
            }
        }
        problems.extend(sweeps::problems(&store, &config.sweeps).await?);
        let relay = Sinks::new(config, sources.kafka(), sources.rabbitmq()).unwrap_or_else(|found| {
            problems.extend(found);
            None
        });
        if !problems.is_empty() {
            return Err(Failure::config(problems.join("\n")));
        }

        let mut loops = Loops::new(monitor, stop);
        let accepted = sources::accepted(config, &store);
        for (inbox, handler) in workers {
            let source = sources.of(inbox, &accepted)?;
            let described = Inbox::new(inbox.consumer.as_str(), store.clone())
                .map_err(|e| Failure::config(e.to_string()))?
                .settings(load::settings(config, inbox))
                .monitor(monitor.clone());
            let handler = Shared(Arc::new(handler));
            loops.keep(format!("inbox:{}", inbox.consumer), move |monitor, stop| {
                source.clone().serve(described.clone().apply(handler.clone()), monitor, stop)
            });
        }
        match relay {
            Some(sinks) => {
                let store = store.clone();
                loops.keep("relay", move |monitor, stop| {
                    sinks.relay(store.clone(), &accepted).monitor(monitor).serve(stop)
                });
            }
            None => {
                let (store, keep) = (store.clone(), config.outbox.keep);
                loops.keep("outbox-purge", move |monitor, stop| {
                    purge_published_loop(store.clone(), keep, HOUSEKEEPING_INTERVAL, monitor, stop)
                });
            }
        }
        for sweep in &config.sweeps {
            let (store, sweep) = (store.clone(), sweep.clone());
            loops.keep(sweeps::name(&sweep), move |monitor, stop| {
                sweeps::sweep(store.clone(), sweep.clone(), monitor, stop)
            });
        }
        let (retention, every) = (stores::retention(&config.inboxes), config.purge.every);
        let (purged, clock) = (store.clone(), Clock::system());
        loops.keep("purge", move |monitor, stop| {
            purge_loop(purged.clone(), retention.clone(), every, clock, monitor, stop)
        });
        let max_age = config.outbox.relay.then_some(config.outbox.max_age);
        loops.keep("store", move |monitor, stop| {
            let oldest = OldestEvent::new(&monitor, max_age);
            watch::watch(store.clone(), oldest, monitor, stop)
        });
        setup.succeeded();
        setup.idle();
        ready.store(true, Ordering::Relaxed);

        let failed = tokio::select! {
            // First: when they are told to stop, they end.
            biased;
            () = stop.cancelled() => None,
            ended = loops.next_end() => Some(format!("a supervisor ended, which it never should: {ended:?}")),
        };
        // Rather no process than half of one.
        stop.cancel();
        ready.store(false, Ordering::Relaxed);
        info!("stopping: ending what is in flight");
        let drained =
            tokio::time::timeout(SHUTDOWN_LIMIT, async { while loops.next_end().await.is_some() {} });
        if drained.await.is_err() {
            warn!("not everything ended in time; what was in flight will be delivered again");
        }
        if let Some(text) = failed {
            return Err(Failure::data(text));
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
