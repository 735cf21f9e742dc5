//! Looks for events and sets units to work, one at a time for each topic and group of shards.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::Inner;
use super::routes::Routes;
use super::unit::{Ended, Unit, UnitKey};
use crate::error::describe;
use crate::outbox::sink::Standing;
use crate::outbox::wake::{Listener, Wake};
use crate::store::{Lease, OutboxAdmin, READY_TOPICS, Ready, SHARDS};

/// The shortest wait between two looks.
const POLL_MIN: Duration = Duration::from_millis(5);
/// How long we look often for events that were written in this process, but not committed by the engine.
const EXPECTED_WITHIN: Duration = Duration::from_secs(1);
/// How long a stopping relay waits for what is under way.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// A turn that took as long, and did not end well, was spent waiting for its receiver.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// What is known of a unit between its runs.
#[derive(Debug, Default)]
struct Past {
    /// When it began last: who waited longest goes first.
    turn: u64,
    failures: u32,
    not_before: Option<Instant>,
    /// Its sink, or the database, did not work.
    failed: bool,
    /// Its receiver was waited for in vain.
    stalled: bool,
}

/// The units at work.
struct Running {
    units: JoinSet<Done>,
    /// What each of them holds.
    leases: HashMap<UnitKey, Vec<Lease>>,
    /// Those whose last turn has stalled.
    stalled: HashSet<UnitKey>,
    /// How many there are of each route.
    of_route: Vec<usize>,
}

/// A unit that has ended.
struct Done {
    key: UnitKey,
    route: usize,
    ended: Ended,
    took: Duration,
}

pub(super) struct Dispatcher<S> {
    inner: Arc<Inner<S>>,
    routes: Routes,
    running: Running,
    past: HashMap<UnitKey, Past>,
    turn: u64,
    /// Where the next look begins: there may be more topics than one look shows.
    from: String,
}

impl<S: OutboxAdmin> Dispatcher<S> {
    pub(super) fn new(inner: Arc<Inner<S>>, routes: Routes) -> Self {
        let of_route = vec![0; routes.len()];
        let running =
            Running { units: JoinSet::new(), leases: HashMap::new(), stalled: HashSet::new(), of_route };
        Self { inner, routes, running, past: HashMap::new(), turn: 0, from: String::new() }
    }

    /// Publishes until `stop`, then waits for what is under way.
    pub(super) async fn run(mut self, stop: &CancellationToken) {
        let health = self.inner.monitor.register("relay-look", "");
        let mut listener = Listener::new();
        let mut heard = self.inner.shards.heard();
        let mut poll = POLL_MIN;
        let mut expectant_until = Instant::now();
        while !stop.is_cancelled() {
            self.give_back_surplus().await;
            match self.look().await {
                Ok(found) => {
                    health.succeeded();
                    let soon = found || Instant::now() < expectant_until;
                    poll = if soon { POLL_MIN } else { (poll * 2).min(self.inner.settings.poll) };
                }
                Err(reason) => {
                    if health.failed(&reason) {
                        warn!(reason, "cannot look into the outbox; trying again");
                    }
                    poll = self.inner.settings.poll;
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                Some(ended) = self.running.units.join_next() => {
                    self.ended(ended);
                    while let Some(ended) = self.running.units.try_join_next() {
                        self.ended(ended);
                    }
                }
                () = self.inner.shards.change(&mut heard) => {}
                wake = listener.wait(poll) => match wake {
                    Wake::Committed => poll = POLL_MIN,
                    Wake::Expected => expectant_until = Instant::now() + EXPECTED_WITHIN,
                    Wake::Poll => {}
                },
            }
        }
        self.drain().await;
    }

    /// Begins what can be begun. True if anything was.
    async fn look(&mut self) -> Result<bool, String> {
        let usable = self.inner.shards.usable();
        if usable.is_empty() {
            return Ok(false);
        }
        let shards: Vec<u16> = usable.iter().map(|lease| lease.shard).collect();
        let connection = self.inner.share.to_look().await;
        let ready = self.inner.store.ready_from(&shards, &self.from, READY_TOPICS).await;
        drop(connection);
        let Ready { places, more_from } = ready.map_err(|error| describe(&error))?;
        let saw_all = self.from.is_empty() && more_from.is_none();
        self.from = more_from.unwrap_or_default();
        let mut waiting: HashMap<UnitKey, Vec<Lease>> = HashMap::new();
        for (topic, shard) in places {
            let Some(lease) = usable.iter().find(|lease| lease.shard == shard) else { continue };
            let route = self.routes.of(&topic).1;
            if route.sink.is_paused() {
                continue;
            }
            let groups = route.units_of_a_topic().min(usize::from(SHARDS)) as u16;
            let key = UnitKey { topic: topic.into(), group: shard % groups };
            waiting.entry(key).or_default().push(*lease);
        }
        let now = Instant::now();
        // What has failed and is not among those that were looked at may still wait.
        let may_wait = |past: &Past| !saw_all && past.failures > 0;
        self.past.retain(|key, past| {
            waiting.contains_key(key) || self.running.leases.contains_key(key) || may_wait(past)
        });
        let mut waiting: Vec<(u64, UnitKey, Vec<Lease>)> = waiting
            .into_iter()
            .filter(|(key, _)| !self.running.leases.contains_key(key))
            .filter_map(|(key, leases)| {
                // Who comes new goes behind those that wait already.
                let turn = self.turn;
                let past = self.past.entry(key.clone()).or_insert_with(|| Past { turn, ..Past::default() });
                past.not_before.is_none_or(|at| at <= now).then_some((past.turn, key, leases))
            })
            .collect();
        waiting.sort_by(|a, b| (a.0, &a.1.topic, a.1.group).cmp(&(b.0, &b.1.topic, b.1.group)));
        let mut begun = false;
        for (_, key, leases) in waiting {
            begun |= self.begin(key, leases);
        }
        self.show_routes();
        Ok(begun)
    }

    /// A route that has nothing under way and no trouble is idle.
    fn show_routes(&self) {
        for at in 0..self.routes.len() {
            if self.routes.at(at).shows_trouble() || self.running.of_route[at] > 0 {
                continue;
            }
            let troubled = |(key, past): (&UnitKey, &Past)| past.failed && self.routes.of(&key.topic).0 == at;
            if !self.past.iter().any(troubled) {
                self.routes.at(at).health.idle();
            }
        }
    }

    /// False if its sink has enough to do, its receiver is away, or it waits for as many receivers as it may.
    fn begin(&mut self, key: UnitKey, leases: Vec<Lease>) -> bool {
        let (at, route) = self.routes.of(&key.topic);
        let most = match route.sink.standing() {
            Standing::Ready | Standing::Failing { .. } => route.at_once,
            Standing::Probe { .. } => 1,
            Standing::Away { .. } => 0,
        };
        if self.running.of_route[at] >= most {
            return false;
        }
        let past = self.past.entry(key.clone()).or_default();
        if past.stalled {
            let of_route = |other: &&UnitKey| self.routes.of(&other.topic).0 == at;
            let waiting = self.running.stalled.iter().filter(of_route).count();
            let of_topic = self.running.stalled.iter().any(|other| other.topic == key.topic);
            if !route.takes_stalled(waiting, of_topic) {
                return false;
            }
            self.running.stalled.insert(key.clone());
        }
        self.turn += 1;
        past.turn = self.turn;
        let unit = Unit {
            key: key.clone(),
            leases: leases.clone(),
            route: Arc::clone(route),
            failures: past.failures,
        };
        self.running.of_route[at] += 1;
        self.running.leases.insert(key, leases);
        let inner = Arc::clone(&self.inner);
        self.running.units.spawn(async move {
            let began = Instant::now();
            let ended = inner.run_unit(&unit).await;
            Done { key: unit.key, route: at, ended, took: began.elapsed() }
        });
        true
    }

    fn ended(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let Ok(Done { key, route, ended, took }) = done else {
            // Units catch the panics of their sinks; only a runtime that shuts down ends up here.
            return;
        };
        self.running.leases.remove(&key);
        self.running.stalled.remove(&key);
        self.running.of_route[route] -= 1;
        let past = self.past.entry(key).or_default();
        past.failed = matches!(ended, Ended::Failed(_));
        past.stalled = ended != Ended::Well && took >= STALLED_AFTER;
        match ended {
            Ended::Well => {
                past.failures = 0;
                past.not_before = None;
            }
            Ended::Paused(wait) | Ended::Failed(wait) => {
                past.failures += 1;
                past.not_before = Some(Instant::now() + wait);
            }
        }
    }

    /// What exceeds our share goes back as soon as nothing of it is under way.
    async fn give_back_surplus(&self) {
        let mut leaving = self.inner.shards.leaving();
        leaving.retain(|shard| !self.running.leases.values().flatten().any(|lease| lease.shard == *shard));
        if !leaving.is_empty() {
            self.inner.release(&leaving, false).await;
        }
    }

    async fn drain(&mut self) {
        let drained = tokio::time::timeout(DRAIN_LIMIT, async {
            while self.running.units.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            error!("not all events under way were confirmed in time; they will be published again");
            self.running.units.shutdown().await;
        }
        let all: Vec<u16> = (0..SHARDS).collect();
        self.inner.release(&all, true).await;
    }
}
