//! Runs one history: the steps of its plan, then peace, then the last look.

use std::time::Duration;

use oncebox_core::inbox::OnFailure;
use tokio::task::JoinSet;

use crate::coverage::{Coverage, Event};
use crate::messages::Behaviour;
use crate::operator::Operator;
use crate::plan::{Mood, Plan, Step};
use crate::process::supervise;
use crate::store::Spot;
use crate::world::{Actor, Inner, World};

/// A panic that belongs to the plan; nobody needs to read about it.
pub(crate) struct Planned;

/// How long partitions stay with a holder that should give them up.
const GIVE_UP_TIME: Duration = Duration::from_secs(10);
/// After this time without a sign of life a process is no member any more.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time the server ends a transaction in which nothing happens.
const IDLE_TRANSACTION: Duration = Duration::from_secs(60);
/// How long peace may take until everything is settled, and how often operators look.
const ROUNDS: usize = 48;
const ROUND: Duration = Duration::from_secs(600);
/// In this round somebody mends every message that fails.
const MENDING: usize = 6;
/// No history is longer.
const LIMIT: Duration = Duration::from_secs(30 * 86_400);

/// How a history ended.
#[derive(Debug)]
pub struct Ended {
    /// What broke the promise, if anything did.
    pub violation: Option<String>,
    /// What happened.
    pub coverage: Coverage,
    /// The history, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs a plan in a world of its own.
pub(crate) fn run(plan: &Plan, traced: bool) -> Ended {
    fastrand::seed(plan.seed);
    let built = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match built {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    };
    let (world, ended) = runtime.block_on(async {
        let world = World::new(plan.config.clone(), plan.seed, traced);
        let mut history =
            History { world: world.clone(), tasks: JoinSet::new(), supervisors: JoinSet::new() };
        if tokio::time::timeout(LIMIT, history.live(plan)).await.is_err() {
            world.lock().violate(format!("the history does not end within {LIMIT:?}"));
        }
        let mut inner = world.lock();
        let ended = Ended {
            violation: inner.violation().map(str::to_owned),
            coverage: inner.coverage.clone(),
            trace: inner.take_trace(),
        };
        drop(inner);
        (world, ended)
    });
    // Tasks of processes that crashed are dropped with the runtime; the world must outlive them.
    drop(runtime);
    drop(world);
    ended
}

struct History {
    world: World,
    tasks: JoinSet<()>,
    supervisors: JoinSet<()>,
}

impl History {
    async fn live(&mut self, plan: &Plan) {
        self.world.lock().processes[plan.config.processes].up = true;
        for process in 0..plan.config.processes {
            self.supervisors.spawn(supervise(self.world.clone(), process));
        }
        for (wait, step) in &plan.steps {
            if self.world.lock().violation().is_some() {
                return;
            }
            if wait.is_zero() {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(*wait).await;
            }
            self.world.lock().note(|| format!("— {step}"));
            self.take(step).await;
            self.world.stir_all();
        }
        self.make_peace().await;
    }

    /// Does something after a while.
    fn later(&mut self, wait: Duration, act: impl FnOnce(&World) + Send + 'static) {
        let world = self.world.clone();
        self.tasks.spawn(async move {
            tokio::time::sleep(wait).await;
            act(&world);
            world.stir_all();
        });
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Pass(time) => {
                self.world.lock().saw(Event::DayPassed);
                tokio::time::sleep(*time).await;
            }
            step => self.take_at_once(step),
        }
    }

    fn take_at_once(&mut self, step: &Step) {
        let mut inner = self.world.lock();
        match step {
            Step::Produce(produce) => {
                inner.messages.send(produce.number, produce.behaviour, produce.emits);
                let (identity, now_ms) = (inner.config.identity(), inner.now_ms());
                if inner.config.prefetch.is_some() {
                    let queue = inner.log.topic_name(produce.place.topic);
                    inner.broker.publish(produce, &identity, &queue, now_ms);
                } else {
                    inner.log.append(produce, &identity, now_ms);
                }
                if produce.copy {
                    inner.saw(Event::DuplicateProduced);
                }
            }
            Step::Marker(place) => inner.append_marker(*place),
            Step::Crash(process) => {
                let life = inner.processes[*process].life;
                inner.saw(Event::Crash);
                drop(inner);
                self.world.kill(Actor { process: *process, life });
            }
            Step::StopStart(process) => inner.processes[*process].stop_wanted = true,
            Step::Freeze(process, time) => {
                drop(inner);
                self.freeze(*process, *time);
            }
            Step::Rebalance => {
                inner.rebalance();
                drop(inner);
                self.later(GIVE_UP_TIME, |world| world.lock().enforce_assignment());
            }
            Step::Cut(process) => inner.cut_channels(|actor| actor.process == *process),
            Step::Up => inner.held_down = false,
            Step::Down => {
                inner.held_down = true;
                let processes = inner.config.processes;
                inner.processes.iter_mut().take(processes).for_each(|process| process.stop_wanted = true);
                inner.saw(Event::AllDown);
            }
            Step::Arm(fault) => inner.db.faults.push(*fault),
            Step::Outage(time) => {
                inner.db.away = true;
                inner.db.unanswered += 1;
                inner.attempts_are_stranded();
                inner.all_connections_break();
                inner.saw(Event::Outage);
                drop(inner);
                self.later(*time, |world| world.lock().db.away = false);
            }
            Step::TableMissing(time) => {
                inner.db.table_missing = true;
                inner.saw(Event::TableMissing);
                drop(inner);
                self.later(*time, |world| world.lock().table_is_back());
            }
            Step::ReplicaLags => inner.db.replica = Some(inner.db.tables.clone()),
            Step::Failover => {
                let live = inner.config.live_failover;
                if inner.db.replica.is_some() && !live {
                    drop(inner);
                    self.all_down();
                    inner = self.world.lock();
                }
                inner.fail_over();
                inner.held_down = false;
            }
            Step::DbClock(off) => {
                let ahead = *off > inner.db.skew_ms;
                inner.db.shown_ms = inner.db_latest_ms();
                inner.db.skew_ms = *off;
                inner.saw(if ahead { Event::ClockForward } else { Event::ClockBack });
            }
            Step::Truncate(place, records) => inner.truncate(*place, *records),
            Step::Recreate(topic) => inner.recreate_topic(*topic),
            Step::Delete(topic) => inner.delete_topic(*topic),
            Step::Compact(place) => inner.compact(*place),
            Step::Expire(place, records) => inner.expire(*place, *records),
            Step::Rewind(consumer, place, records) => {
                inner.rewind(Spot { consumer: *consumer, place: *place }, *records);
            }
            Step::Ahead(consumer, place, records) => {
                inner.commit_ahead(Spot { consumer: *consumer, place: *place }, *records);
            }
            Step::LoseOffsets(consumer) => inner.lose_offsets(*consumer),
            Step::RestartHalted => {
                let halted: Vec<usize> = inner.broker.stops.keys().map(|(_, process)| *process).collect();
                for process in halted {
                    inner.processes[process].stop_wanted = true;
                    inner.saw(Event::RestartedHalted);
                }
                let halted: Vec<Spot> = inner.log.stops.keys().copied().collect();
                for spot in halted {
                    let holder = inner.log.assigned.get(&spot).and_then(|assigned| assigned.holder);
                    if let Some(holder) = holder {
                        inner.processes[holder.process].stop_wanted = true;
                        inner.saw(Event::RestartedHalted);
                    }
                }
            }
            Step::Sink(mood, time) => {
                inner.sink.mood = Some(*mood);
                drop(inner);
                let mood: Mood = *mood;
                self.later(*time, move |world| {
                    let mut inner = world.lock();
                    if inner.sink.mood == Some(mood) {
                        inner.sink.mood = None;
                    }
                });
            }
            // Takes its time, and was taken before.
            Step::Pass(_) => {}
            Step::MoveBack(..)
            | Step::Operate
            | Step::Replay { .. }
            | Step::Drop
            | Step::AppEmit(_)
            | Step::RetryEvents
            | Step::Pause(_)
            | Step::Resume(_) => {
                drop(inner);
                self.operate(step.clone());
            }
        }
    }

    fn operate(&mut self, step: Step) {
        let operator = Operator::new(&self.world);
        self.tasks.spawn(async move {
            match step {
                Step::MoveBack(consumer, place, records) => {
                    operator.move_back(Spot { consumer, place }, records).await;
                }
                Step::Replay { forced } => operator.replay(forced).await,
                Step::Drop => operator.drop_letter().await,
                Step::AppEmit(key) => operator.emit(key).await,
                Step::RetryEvents => operator.retry_events().await,
                Step::Pause(consumer) => operator.pause(consumer).await,
                Step::Resume(consumer) => operator.resume(consumer).await,
                _ => operator.look_after().await,
            }
        });
    }

    fn freeze(&mut self, process: usize, time: Duration) {
        let life = {
            let mut inner = self.world.lock();
            let state = &mut inner.processes[process];
            if !state.up {
                return;
            }
            state.frozen = true;
            let life = state.life;
            inner.blames_what_runs(Actor { process, life });
            inner.saw(Event::Freeze);
            life
        };
        let is_frozen =
            move |inner: &Inner| inner.processes[process].frozen && inner.processes[process].life == life;
        self.later(SESSION_TIMEOUT, move |world| {
            let mut inner = world.lock();
            if is_frozen(&inner) {
                inner.set_member(process, false);
            }
        });
        self.later(IDLE_TRANSACTION, move |world| {
            let mut inner = world.lock();
            if is_frozen(&inner) {
                inner.end_idle(Actor { process, life });
            }
        });
        self.later(time, move |world| {
            let mut inner = world.lock();
            if is_frozen(&inner) {
                inner.processes[process].frozen = false;
                inner.set_member(process, true);
            }
        });
    }

    /// Crashes every process and keeps them down.
    fn all_down(&mut self) {
        self.world.lock().held_down = true;
        let actors: Vec<Actor> = {
            let inner = self.world.lock();
            let lives = inner.processes.iter().take(inner.config.processes).enumerate();
            lives.map(|(process, state)| Actor { process, life: state.life }).collect()
        };
        actors.into_iter().for_each(|actor| self.world.kill(actor));
    }

    /// The faults stop, operators look after everything, and in the end nothing is left to do.
    async fn make_peace(&mut self) {
        {
            let mut inner = self.world.lock();
            inner.note(|| "— peace".to_owned());
            (inner.db.away, inner.sink.mood) = (false, None);
            inner.held_down = false;
            inner.table_is_back();
            inner.db.faults.clear();
            for process in 0..inner.config.processes {
                if inner.processes[process].frozen {
                    inner.processes[process].frozen = false;
                    inner.set_member(process, true);
                }
            }
        }
        self.world.stir_all();
        for round in 0..ROUNDS {
            // Also what somebody paused at the last moment.
            self.world.lock().db.tables.paused.clear();
            tokio::time::sleep(if round == 0 { ROUND / 10 } else { ROUND }).await;
            if self.world.lock().violation().is_some() {
                return;
            }
            if self.world.lock().left_to_do().is_empty() {
                return self.end().await;
            }
            if round == MENDING && self.few_fail() {
                let left = self.world.lock().left_to_do().join("; ");
                self.world.lock().violate(format!("a few bad messages hold everything up: {left}"));
                return;
            }
            if round >= MENDING {
                // Whatever is wrong with the messages, somebody mends it.
                self.world.lock().messages.all_mut().for_each(|sent| sent.mended = true);
            }
            let operator = Operator::new(&self.world);
            let acts = async {
                operator.look_after().await;
                operator.retry_events().await;
            };
            // A replay that ends its process takes the operators' other commands with it.
            tokio::time::timeout(ROUND, acts).await.ok();
            self.world.lock().enforce_assignment();
            self.world.stir_all();
        }
        let left = self.world.lock().left_to_do().join("; ");
        self.world
            .lock()
            .violate(format!("not everything is settled in {ROUNDS} rounds of {ROUND:?}: {left}"));
    }

    /// Whether so few messages fail that nobody can think the world is to blame, and they can be given up.
    fn few_fail(&self) -> bool {
        let inner = self.world.lock();
        let limit = inner.config.streak_limit as usize;
        let settled = inner.log.stops.is_empty() && inner.config.on_failure != OnFailure::Halt;
        let spots = inner.log.spots();
        let records = spots.iter().filter(|spot| spot.consumer == 0);
        let records = records.flat_map(|spot| inner.log.partition(spot.place).records.iter().flatten());
        let is_bad =
            |number| inner.messages.get(number).is_some_and(|sent| sent.behaviour != Behaviour::Good);
        let bad = records.filter(|entry| is_bad(entry.number)).count();
        let waits = self.world_waits_for_messages(&inner);
        settled && waits && bad == 1 && limit > 1
    }

    fn world_waits_for_messages(&self, inner: &Inner) -> bool {
        let positions = &inner.db.tables.positions;
        inner.log.spots().into_iter().filter(|spot| inner.log.topics[spot.place.topic].exists).any(|spot| {
            let next = positions.get(&spot).and_then(|row| row.next_offset);
            next.is_some_and(|next| next < inner.log.partition(spot.place).end())
        })
    }

    async fn end(&mut self) {
        self.world.lock().check_finally();
        {
            let mut inner = self.world.lock();
            inner.shutting_down = true;
            inner.processes.iter_mut().for_each(|process| process.stop_wanted = true);
        }
        self.world.stir_all();
        while self.supervisors.join_next().await.is_some() {}
        self.world.lock().check_stopped();
    }
}
