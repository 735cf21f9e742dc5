//! A simulated process and its supervisor: started, crashed, stopped in good order, started again.

use std::time::Duration;

use oncebox_core::backoff::Backoff;
use oncebox_core::clock::Clock;
use oncebox_core::error::BoxError;
use oncebox_core::inbox::{BatchBounds, Inbox, Memory, PauseWatch, RetryPolicy, Settings, Turn, purge_loop};
use oncebox_core::inbox::{Identity, Limits, Selector};
use oncebox_core::live::Live;
use oncebox_core::monitor::Monitor;
use oncebox_core::names::ConsumerName;
use oncebox_core::outbox::Relay;
use oncebox_core::source::{Intake, Source};
use oncebox_core::store::Retention;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::broker::QueueSource;
use crate::coverage::Event;
use crate::handler::{OneMessage, WholeBatch};
use crate::log::ModelSource;
use crate::plan::Config;
use crate::sink::ModelSink;
use crate::store::ModelStore;
use crate::world::{About, Actor, World};

/// How often a process asks who is paused, where somebody may be; where nobody is, once is enough.
const LOOK_FOR_PAUSES: Duration = Duration::from_secs(20);
const HARDLY_EVER: Duration = Duration::from_secs(86_400);

/// A few messages.
const TIGHT_MEMORY: usize = 4 * 1024;
/// How long an orderly stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(300);

impl Config {
    pub(crate) fn identity(&self) -> Identity {
        let id = if self.by_coordinates { Selector::Coordinates } else { Selector::Header("id".to_owned()) };
        Identity { id, tenant: None, limits: Limits::default() }
    }

    fn settings(&self, clock: Clock, turn: Turn, memory: Memory) -> Settings {
        let mut settings = Settings::default();
        settings.max_connections = self.tight.then_some(1);
        settings.memory = memory;
        settings.identity = self.identity();
        settings.start = self.start;
        settings.batch = BatchBounds { messages: self.batch, bytes: 1 << 20 };
        settings.lanes = self.lanes;
        settings.retry = RetryPolicy {
            attempts: self.attempts,
            backoff: Backoff::new(Duration::from_millis(200), Duration::from_secs(30)),
        };
        settings.crash_limit = self.crash_limit;
        settings.streak_limit = self.streak_limit;
        settings.turn = turn;
        settings.on_failure = self.on_failure;
        settings.stale = self.stale;
        settings.retention = self.keep;
        settings.purge_every = self.purge_every;
        settings.clock = clock;
        settings
    }
}

/// Where a process gets its messages from.
enum Reads {
    Logs(ModelSource),
    Queues(QueueSource),
}

impl Source for Reads {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        match self {
            Self::Logs(source) => source.run(intake, stop).await,
            Self::Queues(source) => source.run(intake, stop).await,
        }
    }
}

/// Runs a process until the world shuts down: whatever ends it, it is started again.
pub(crate) async fn supervise(world: World, process: usize) {
    loop {
        let (actor, stop, mut tasks) = start(&world, process);
        let wants_stop = world.until(About::Lives, |inner| {
            let process = &inner.processes[process];
            (process.stop_wanted || !process.up).then_some(process.up)
        });
        if wants_stop.await {
            stop.cancel();
            let crashed = world.until(About::Lives, |inner| (!inner.processes[process].up).then_some(()));
            let ended = async { while tasks.join_next().await.is_some() {} };
            tokio::select! {
                biased;
                () = ended => {
                    let mut inner = world.lock();
                    inner.processes[process].up = false;
                    inner.saw(Event::CleanStop);
                    inner.note(|| format!("p{process} has stopped"));
                }
                () = crashed => {}
                () = tokio::time::sleep(STOP_LIMIT) => {
                    world.lock().violate(format!("p{process} does not stop within {STOP_LIMIT:?}"));
                }
            }
            let mut inner = world.lock();
            inner.processes[process].stop_wanted = false;
            inner.set_member(process, false);
            drop(inner);
            world.stir_all();
        } else {
            // The broker notices after a while that the process is gone, or that it is back.
            let noticed = world.lock().rng.u64(0..30_000);
            tokio::time::sleep(Duration::from_millis(noticed)).await;
            if world.lock().one_in(2) {
                world.lock().set_member(process, false);
                world.stir_all();
            }
        }
        if world.until(About::Lives, |inner| (!inner.held_down).then_some(inner.shutting_down)).await {
            world.lock().set_member(process, false);
            break;
        }
        world.crash(actor);
        let wait = world.lock().rng.u64(100..5_000);
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

fn start(world: &World, process: usize) -> (Actor, CancellationToken, JoinSet<()>) {
    let (actor, config, now_ms) = {
        let mut inner = world.lock();
        let shutting_down = inner.shutting_down;
        let state = &mut inner.processes[process];
        state.life += 1;
        (state.up, state.frozen, state.stop_wanted) = (true, false, shutting_down);
        let (life, skew_ms) = (state.life, state.skew_ms);
        inner.note(|| format!("p{process} starts"));
        inner.set_member(process, true);
        (Actor { process, life }, inner.config.clone(), inner.now_ms() + skew_ms)
    };
    world.stir_all();
    let (clock, turn) = (Clock::starting_at(now_ms), Turn::new());
    let memory = Memory::new(if config.tight { TIGHT_MEMORY } else { Memory::DEFAULT_BYTES });
    let (monitor, stop) = (Monitor::default(), CancellationToken::new());
    let pauses = PauseWatch::every(if config.pauses { LOOK_FOR_PAUSES } else { HARDLY_EVER });
    let store = ModelStore { world: world.clone(), actor };
    let mut tasks = JoinSet::new();
    let mut retention = Vec::new();
    for consumer in 0..config.consumers {
        let Ok(inbox) = Inbox::new(format!("c{consumer}"), store.clone()) else { continue };
        let inbox = inbox
            .settings(config.settings(clock, turn.clone(), memory.clone()))
            .pauses(pauses.clone())
            .monitor(monitor.clone());
        let source = match config.prefetch {
            Some(_) => Reads::Queues(QueueSource { world: world.clone(), actor, consumer }),
            None => Reads::Logs(ModelSource { world: world.clone(), actor, consumer }),
        };
        let handler = OneMessage { world: world.clone(), actor, consumer };
        if config.set_based {
            tasks.spawn(inbox.apply(WholeBatch(handler)).serve(source, stop.clone()));
        } else {
            tasks.spawn(inbox.with(handler).serve(source, stop.clone()));
        }
        let name = ConsumerName::new(format!("c{consumer}"));
        retention.extend(name.map(|consumer| Retention { consumer, keep: config.keep }));
    }
    tasks.spawn(purge_loop(
        store.clone(),
        Live::new(retention),
        config.purge_every,
        clock,
        monitor.clone(),
        stop.clone(),
    ));
    if config.relay {
        let mut relay = Relay::new(store)
            .sink(ModelSink { world: world.clone(), actor })
            .name(format!("p{process}"))
            .keep(if config.keep_published { Duration::from_secs(600) } else { Duration::ZERO })
            .lease(Duration::from_secs(400))
            .poll(Duration::from_secs(120))
            .monitor(monitor);
        if config.tight {
            relay = relay.max_connections(2);
        }
        tasks.spawn(relay.serve(stop.clone()));
    }
    (actor, stop, tasks)
}
