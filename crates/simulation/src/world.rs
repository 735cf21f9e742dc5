//! Everything that the simulated processes share: clock, chance, database, log, sink, and what was seen to go wrong.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::coverage::{Coverage, Event};
use crate::log::Log;
use crate::messages::Messages;
use crate::plan::Config;
use crate::sink::Receiver;
use crate::store::{Database, Spot};

/// The time of day at which every history begins, in milliseconds since 1970.
const BEGIN_MS: i64 = 1_800_000_000_000;

/// More than this happens only when something turns in circles.
const MAX_DEEDS: u32 = 1_000_000;

/// The shared world. Cheap to clone. Its lock is never held across an `await`.
#[derive(Clone)]
pub(crate) struct World {
    inner: Arc<Mutex<Inner>>,
    signals: Arc<Signals>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// Who is told to look again.
#[derive(Default)]
struct Signals {
    lives: Notify,
    transactions: Notify,
    log: Notify,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum About {
    /// A process starts, stops, freezes or ends.
    Lives,
    /// A transaction ends.
    Transactions,
    /// Something happens to the log or its groups.
    Log,
}

/// What is behind the lock.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) rng: fastrand::Rng,
    began: Instant,
    /// The time of day at which it began, in milliseconds since 1970.
    begin_ms: i64,
    /// Nothing takes time but what others do.
    swift: bool,
    pub(crate) processes: Vec<Process>,
    pub(crate) db: Database,
    pub(crate) log: Log,
    pub(crate) broker: Broker,
    pub(crate) sink: Receiver,
    pub(crate) messages: Messages,
    pub(crate) coverage: Coverage,
    /// An operator has replayed letters out of order.
    pub(crate) forced_replay: bool,
    /// Processes that end stay down for now.
    pub(crate) held_down: bool,
    /// The history is over: processes that end stay down.
    pub(crate) shutting_down: bool,
    /// How much was done so far.
    deeds: u32,
    trace: Option<Vec<String>>,
    violation: Option<String>,
}

/// One simulated process, over all its lives.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Which life it is in; what belongs to an earlier one is dead.
    pub(crate) life: u32,
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    pub(crate) stop_wanted: bool,
    /// How far its clock is from the true time, in milliseconds.
    pub(crate) skew_ms: i64,
}

/// One life of a process: what its store, source, sink and handlers act for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Actor {
    pub(crate) process: usize,
    pub(crate) life: u32,
}

impl World {
    pub(crate) fn new(config: Config, seed: u64, traced: bool) -> Self {
        // The last one is the operators' command line.
        let processes = (0..=config.processes)
            .map(|at| Process { skew_ms: config.skews_ms[at % config.skews_ms.len()], ..Process::default() })
            .collect();
        let inner = Inner {
            rng: fastrand::Rng::with_seed(seed ^ 0x5eed_c4a0),
            began: Instant::now(),
            begin_ms: BEGIN_MS,
            swift: false,
            processes,
            db: Database::new(),
            log: Log::new(&config),
            broker: Broker::new(&config),
            sink: Receiver::default(),
            messages: Messages::default(),
            coverage: Coverage::default(),
            forced_replay: false,
            held_down: false,
            shutting_down: false,
            deeds: 0,
            trace: traced.then(Vec::new),
            violation: None,
            config,
        };
        Self { inner: Arc::new(Mutex::new(inner)), signals: Arc::default() }
    }

    /// A world without a history: one process, which lives, right clocks, and nothing that takes time or goes wrong.
    pub(crate) fn quiet(mut config: Config, now_ms: i64) -> (Self, Actor) {
        config.skews_ms = vec![0];
        let world = Self::new(config, 0, false);
        let mut inner = world.lock();
        (inner.begin_ms, inner.swift) = (now_ms, true);
        inner.processes[0] = Process { life: 1, up: true, ..Process::default() };
        drop(inner);
        (world, Actor { process: 0, life: 1 })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, about: About) -> &Notify {
        match about {
            About::Lives => &self.signals.lives,
            About::Transactions => &self.signals.transactions,
            About::Log => &self.signals.log,
        }
    }

    /// Tells those who wait for it to look again. (Not tokio's `watch`, which wakes in a random order.)
    pub(crate) fn stir(&self, about: About) {
        self.signal(about).notify_waiters();
    }

    /// Tells everybody.
    pub(crate) fn stir_all(&self) {
        [About::Lives, About::Transactions, About::Log].into_iter().for_each(|about| self.stir(about));
    }

    /// The next time that something happens, from now on.
    pub(crate) fn next(&self, about: About) -> Notified<'_> {
        self.signal(about).notified()
    }

    /// Waits until the condition holds.
    pub(crate) async fn until<T>(
        &self,
        about: About,
        mut condition: impl FnMut(&mut Inner) -> Option<T>,
    ) -> T {
        loop {
            let mut next = std::pin::pin!(self.next(about));
            next.as_mut().enable();
            let found = condition(&mut self.lock());
            match found {
                Some(value) => return value,
                None => next.await,
            }
        }
    }

    /// Passes while this life goes on; waits while the process is frozen; never returns once it is dead.
    pub(crate) async fn alive(&self, actor: Actor) {
        let state = |inner: &mut Inner| {
            let process = &inner.processes[actor.process];
            let dead = process.life != actor.life || !process.up;
            (!dead && !process.frozen).then_some(())
        };
        if state(&mut self.lock()).is_none() {
            self.until(About::Lives, state).await;
        }
    }

    /// Something takes a little time: mostly none, sometimes some milliseconds, rarely a second.
    pub(crate) async fn takes_time(&self, actor: Actor) {
        let wait = {
            let mut inner = self.lock();
            inner.deeds += u32::from(!inner.swift);
            if inner.deeds == MAX_DEEDS {
                inner.violate(format!(
                    "somebody does the same again and again: {MAX_DEEDS} deeds in one history"
                ));
            }
            let busy = inner.deeds >= MAX_DEEDS;
            match inner.rng.u32(0..64) {
                // Time passes quickly to the end.
                _ if busy => 10_000_000,
                _ if inner.swift => 0,
                0..40 => 0,
                40..62 => inner.rng.u64(1..20),
                62 => inner.rng.u64(20..200),
                _ => inner.rng.u64(200..1_500),
            }
        };
        if wait == 0 {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        self.alive(actor).await;
    }

    /// The process is killed from outside. Whatever runs in it at that moment may be blamed, for nobody can tell.
    pub(crate) fn kill(&self, actor: Actor) {
        self.lock().blames_what_runs(actor);
        self.crash(actor);
    }

    /// The process ends here and now.
    pub(crate) fn crash(&self, actor: Actor) {
        let mut inner = self.lock();
        let process = &mut inner.processes[actor.process];
        if process.life != actor.life || !process.up {
            return;
        }
        process.up = false;
        process.frozen = false;
        inner.note(|| format!("p{} ends in a crash", actor.process));
        inner.connections_break(actor);
        drop(inner);
        self.stir_all();
    }
}

impl Inner {
    /// The database is away: an attempt that ends meanwhile cannot be taken back, and looks like a crash to the next owner.
    pub(crate) fn attempts_are_stranded(&mut self) {
        let mut actors: Vec<Actor> = self.db.attempted_by.values().flatten().copied().collect();
        actors.sort();
        actors.dedup();
        actors.into_iter().for_each(|actor| self.blames_what_runs(actor));
    }

    /// Messages with a recorded attempt look as if they had ended the process.
    pub(crate) fn blames_what_runs(&mut self, actor: Actor) {
        let attempts: Vec<_> = self.db.tables.attempts.keys().copied().collect();
        for (spot, offset) in attempts {
            let by_actor = self.db.attempted_by.get(&(spot, offset)).is_some_and(|by| by.contains(&actor));
            let number = self.number_attempted(spot, offset);
            if let Some(sent) = number.filter(|_| by_actor).and_then(|n| self.messages.get_mut(n)) {
                sent.killed += 1;
            }
        }
    }

    /// Whose attempt is written down there: at an offset of a log, or under a number of a queue.
    fn number_attempted(&self, spot: Spot, number: i64) -> Option<u32> {
        match self.config.prefetch {
            Some(_) => self.broker.guarded(spot, number),
            None => self.log.known_partition(spot.place)?.at(number).map(|entry| entry.number),
        }
    }

    /// Somebody else, who lives, is at the same message: its attempt looks like one that ended a process.
    pub(crate) fn excuse_if_shared(&mut self, spot: Spot, number: i64, actor: Actor) {
        let others = self.db.attempted_by.get(&(spot, number)).into_iter().flatten();
        let lives = |other: &&Actor| {
            let process = &self.processes[other.process];
            **other != actor && process.up && process.life == other.life
        };
        let shared =
            others.filter(lives).count() > 0 && self.db.tables.attempts.contains_key(&(spot, number));
        if let Some(sent) = self.number_attempted(spot, number).and_then(|n| self.messages.get_mut(n)) {
            sent.killed += u32::from(shared);
        }
    }

    /// Somebody else has taken the partition meanwhile: an attempt that ended without a crash cannot be taken back, and looks like
    /// one that ended a process.
    pub(crate) fn excuse_if_stranded(&mut self, spot: Spot, number: i64) {
        let stranded = self.db.tables.attempts.contains_key(&(spot, number));
        if let Some(sent) = self.number_attempted(spot, number).and_then(|n| self.messages.get_mut(n)) {
            sent.killed += u32::from(stranded);
        }
    }

    /// Milliseconds since the history began.
    pub(crate) fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// The true time, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.begin_ms + self.elapsed_ms()
    }

    /// How long after the beginning this time of day is, in milliseconds.
    pub(crate) fn since_begin(&self, at_ms: i64) -> i64 {
        at_ms - self.begin_ms
    }

    pub(crate) fn saw(&mut self, event: Event) {
        self.coverage.count(event);
    }

    /// A line of the history.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let at = self.elapsed_ms();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9}.{:03} {}", at / 1_000, at % 1_000, line()));
        }
    }

    /// The promise is broken. Only the first time counts.
    pub(crate) fn violate(&mut self, what: String) {
        self.note(|| format!("BROKEN: {what}"));
        self.violation.get_or_insert(what);
    }

    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, times: u32) -> bool {
        self.rng.u32(0..times) == 0
    }
}
