//! Looks for events and sets units to work, one at a time for each topic and group of shards.

use std::collections::HashMap;
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
use crate::outbox::wake::{Listener, Wake};
use crate::store::{Lease, OutboxAdmin, SHARDS};

/// The shortest wait between two looks.
const POLL_MIN: Duration = Duration::from_millis(5);
/// How long we look often for events that were written in this process, but not committed by the engine.
const EXPECTED_WITHIN: Duration = Duration::from_secs(1);
/// How long a stopping relay waits for what is under way.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// What is known of a unit between its runs.
#[derive(Debug, Default)]
struct Past {
    /// When it began last: who waited longest goes first.
    turn: u64,
    failures: u32,
    not_before: Option<Instant>,
    /// Its sink, or the database, did not work.
    failed: bool,
}

/// The units at work.
struct Running {
    units: JoinSet<(UnitKey, usize, Ended)>,
    /// What each of them holds.
    leases: HashMap<UnitKey, Vec<Lease>>,
    /// How many there are of each route.
    of_route: Vec<usize>,
}

pub(super) struct Dispatcher<S> {
    inner: Arc<Inner<S>>,
    routes: Routes,
    running: Running,
    past: HashMap<UnitKey, Past>,
    turn: u64,
}

impl<S: OutboxAdmin> Dispatcher<S> {
    pub(super) fn new(inner: Arc<Inner<S>>, routes: Routes) -> Self {
        let of_route = vec![0; routes.len()];
        let running = Running { units: JoinSet::new(), leases: HashMap::new(), of_route };
        Self { inner, routes, running, past: HashMap::new(), turn: 0 }
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
                    warn!(reason, "cannot look into the outbox; trying again");
                    health.failed(reason);
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
        let ready = self.inner.store.ready(&shards).await.map_err(|error| describe(&error))?;
        let mut waiting: HashMap<UnitKey, Vec<Lease>> = HashMap::new();
        for (topic, shard) in ready {
            let Some(lease) = usable.iter().find(|lease| lease.shard == shard) else { continue };
            let groups = self.routes.of(&topic).1.at_once.min(usize::from(SHARDS)) as u16;
            let key = UnitKey { topic: topic.into(), group: shard % groups };
            waiting.entry(key).or_default().push(*lease);
        }
        let now = Instant::now();
        self.past.retain(|key, _| waiting.contains_key(key) || self.running.leases.contains_key(key));
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
        self.show_idle_routes();
        Ok(begun)
    }

    /// A route that has nothing under way and no trouble is idle.
    fn show_idle_routes(&self) {
        for at in (0..self.routes.len()).filter(|at| self.running.of_route[*at] == 0) {
            let troubled = |(key, past): (&UnitKey, &Past)| past.failed && self.routes.of(&key.topic).0 == at;
            if !self.past.iter().any(troubled) {
                self.routes.at(at).health.idle();
            }
        }
    }

    /// False if its sink has enough to do.
    fn begin(&mut self, key: UnitKey, leases: Vec<Lease>) -> bool {
        let (at, route) = self.routes.of(&key.topic);
        if self.running.of_route[at] >= route.at_once {
            return false;
        }
        self.turn += 1;
        let past = self.past.entry(key.clone()).or_default();
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
            let ended = inner.run_unit(&unit).await;
            (unit.key, at, ended)
        });
        true
    }

    fn ended(&mut self, ended: Result<(UnitKey, usize, Ended), tokio::task::JoinError>) {
        let Ok((key, at, ended)) = ended else {
            // Units catch the panics of their sinks; only a runtime that shuts down ends up here.
            return;
        };
        self.running.leases.remove(&key);
        self.running.of_route[at] -= 1;
        let past = self.past.entry(key).or_default();
        past.failed = matches!(ended, Ended::Failed(_));
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
