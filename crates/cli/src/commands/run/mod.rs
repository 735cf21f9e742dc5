//! `oncebox run`: everything the configuration declares, until SIGTERM or SIGINT.

mod announce;
mod exporter;
mod relay;
mod retention;
mod settings;
mod shared;
mod signals;
mod sources;
mod summary;
mod supervise;
mod sweeps;
mod telemetry;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oncebox_config::{Config, SourceConfig};
use oncebox_core::backoff;
use oncebox_core::clock::Clock;
use oncebox_core::error::describe_whole;
use oncebox_core::inbox::{Inbox, PauseWatch, purge_loop};
use oncebox_core::monitor::{LoopHandle, Monitor};
use oncebox_core::operate::{UPKEEP_INTERVAL, upkeep_loop};
use oncebox_core::outbox::purge_published_loop;
use oncebox_core::store::FindingLevel;
use oncebox_core::telemetry::Telemetry;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::dashboard::{self, Process};
use crate::exit::{Answer, CommandResult, Exit, Failure, is_unreachable};
use crate::http::{self, Readiness, Shown};
use crate::load::{self, Shares};
use crate::logging::LogLevel;
use crate::stores::{self, ConfiguredStore, WithStore, with_store};
use relay::Sinks;
use settings::{LiveSettings, Reloading};
use shared::Shared;
use sources::{Doors, Sources};
use supervise::Loops;
use telemetry::Exporting;
use watch::OutboxAlarms;

/// How often published events and swept rows whose time is over are removed, where no relay does it.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// How long a shutdown may take before the process ends anyway; what was in flight is then delivered again.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(45);

pub(crate) async fn run(file: &Path, level: LogLevel) -> CommandResult {
    let (config, text) = load::config_and_text(file)?;
    if config.inboxes.is_empty() && config.sweeps.is_empty() && !config.outbox.relay {
        return Err(Failure::config(format!(
            "{} declares nothing to run: add an [[inbox]], a [[sweep]], or `relay = true` under [outbox]",
            file.display()
        )));
    }
    let settings = LiveSettings::new(&config, level);
    announce::first_line(file, &config);
    let doors = Doors::new(&config)?;
    let stop = CancellationToken::new();
    signals::stop_on_signal(stop.clone())?;
    let reloading = Reloading::new(file, text, config.clone(), settings.clone());
    tokio::spawn(reloading.run(signals::reloads()?, stop.clone()));
    let monitor = Monitor::default();
    let members = config.inboxes.iter().filter(|inbox| !matches!(inbox.source, SourceConfig::Http(_)));
    let ready = Readiness::new(&monitor, members.map(|inbox| inbox.consumer.to_string()));
    let metrics = exporter::install()?;
    let exporting = Exporting::start(config.telemetry.as_ref())?;
    let pauses = PauseWatch::default();
    let shares = Shares::of(&config);
    let store = shares.store(&config.store);
    let mut loops = Loops::new(&monitor, &stop);
    if let Some(http) = &config.http {
        let process = Process { monitor: monitor.clone(), metrics: metrics.clone() };
        let shown = Shown { monitor: monitor.clone(), ready: ready.clone(), pauses: pauses.clone(), metrics };
        let dashboard = if http.dashboard { Some(dashboard::new(http)?) } else { None };
        let listener = http::listen(http.listen, http.dashboard)
            .map_err(|e| Failure::config(format!("cannot listen on {} (http.listen): {e}", http.listen)))?;
        let inboxes = doors.router();
        let served = dashboard.clone();
        loops.keep("http", move |_, stop| {
            http::serve(Arc::clone(&listener), shown.clone(), inboxes.clone(), served.clone(), stop)
        });
        if let Some(dashboard) = dashboard {
            let config = Arc::new(config.clone());
            loops.keep("dashboard", move |_, stop| {
                dashboard::keep(dashboard.clone(), Arc::clone(&config), Some(process.clone()), stop)
            });
        }
    }

    let setup = monitor.register_with("setup", "", "set up");
    let mut tries = 0;
    let ended = loop {
        let daemon = Daemon {
            config: &config,
            shares: &shares,
            doors: &doors,
            stop: &stop,
            monitor: &monitor,
            pauses: &pauses,
            ready: &ready,
            setup: &setup,
            settings: &settings,
            telemetry: exporting.telemetry(),
        };
        match with_store(&store, daemon).await {
            // The database is away: stay up, say so, try again.
            Err(failure) if failure.exit == Exit::Unreachable && !stop.is_cancelled() => {
                tries += 1;
                if setup.failed(&failure.text) {
                    warn!(reason = failure.text, "cannot start yet; trying again");
                }
                tokio::select! {
                    () = tokio::time::sleep(backoff::SETUP.delay(tries)) => {}
                    () = stop.cancelled() => break Ok(Answer::Yes),
                }
            }
            other => break other,
        }
    };
    exporting.finish().await;
    ended
}

struct Daemon<'a> {
    config: &'a Config,
    shares: &'a Shares,
    doors: &'a Doors,
    stop: &'a CancellationToken,
    monitor: &'a Monitor,
    pauses: &'a PauseWatch,
    ready: &'a Readiness,
    setup: &'a LoopHandle,
    settings: &'a LiveSettings,
    telemetry: &'a Telemetry,
}

impl WithStore for Daemon<'_> {
    type Output = CommandResult;

    const MAKES_FILE: bool = true;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        let Self { config, shares, doors, stop, monitor, pauses, ready, setup, settings: live, telemetry } =
            self;
        for migration in store.migrate().await? {
            info!(version = migration.version, name = migration.name, "migration applied");
        }
        store.arrange(&config.store).await?;
        let sources = Sources::new(config, doors, shares.fetched_ahead())?;
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
                Err(e) => problems.push(format!("inbox {}: {}", inbox.consumer, describe_whole(&e))),
            }
        }
        problems.extend(sweeps::problems(&store, &config.sweeps).await?);
        let relay = Sinks::new(config, shares, sources.kafka_of_relay(config), sources.rabbitmq())
            .unwrap_or_else(|found| {
                problems.extend(found);
                None
            });
        if !problems.is_empty() {
            return Err(Failure::config(problems.join("\n")));
        }

        let mut loops = Loops::new(monitor, stop);
        let accepted = sources::accepted(config, &store);
        for (number, (inbox, handler)) in workers.into_iter().enumerate() {
            let source = sources.of(inbox, &accepted)?;
            let mut settings = load::settings(config, inbox);
            shares.give_inbox(number, &mut settings);
            let mut described = Inbox::new(inbox.consumer.as_str(), store.clone())
                .map_err(|e| Failure::config(e.to_string()))?
                .settings(settings)
                .pauses(pauses.clone())
                .telemetry(telemetry.clone())
                .monitor(monitor.clone());
            if let Some(retry) = live.retry(&inbox.consumer) {
                described = described.live_retry(retry);
            }
            let handler = Shared(Arc::new(handler));
            loops.keep(format!("inbox:{}", inbox.consumer), move |monitor, stop| {
                source.clone().serve(described.clone().apply(handler.clone()), monitor, stop)
            });
        }
        match relay {
            Some(sinks) => {
                let (store, telemetry) = (store.clone(), telemetry.clone());
                loops.keep("relay", move |monitor, stop| {
                    let relay = sinks.relay(store.clone(), &accepted).monitor(monitor);
                    relay.telemetry(telemetry.clone()).serve(stop)
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
        let (retention, every) = (live.retention.clone(), config.purge.every);
        let (purged, clock) = (store.clone(), Clock::system());
        loops.keep("purge", move |monitor, stop| {
            purge_loop(purged.clone(), retention.clone(), every, clock, monitor, stop)
        });
        let (kept, keep_audit) = (store.clone(), config.purge.audit);
        loops.keep("upkeep", move |monitor, stop| {
            upkeep_loop(kept.clone(), keep_audit, UPKEEP_INTERVAL, monitor, stop)
        });
        let max_age = config.outbox.relay.then_some(config.outbox.max_age);
        loops.keep("store", move |monitor, stop| {
            let outbox = OutboxAlarms::new(&monitor, max_age);
            watch::watch(store.clone(), outbox, monitor, stop)
        });
        let every = live.summary.clone();
        loops.keep("summary", move |monitor, stop| summary::summarize(monitor, every.clone(), stop));
        setup.succeeded();
        setup.idle();
        ready.set_up(true);
        tokio::spawn(announce::announce(config.clone(), ready.clone(), stop.clone()));

        let failed = tokio::select! {
            // First: when they are told to stop, they end.
            biased;
            () = stop.cancelled() => None,
            ended = loops.next_end() => Some(format!("a supervisor ended, which it never should: {ended:?}")),
        };
        // Rather no process than half of one.
        stop.cancel();
        ready.set_up(false);
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
