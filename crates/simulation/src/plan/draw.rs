//! Draws a plan from a seed.
//!
//! Each history has only some kinds of trouble, chosen by chance, so that they meet each other often.

use std::ops::Range;
use std::time::Duration;

use oncebox_core::inbox::{OnFailure, StalePolicy, StartPolicy};

use super::{Config, Fault, Mood, Place, Plan, Produce, Step};
use crate::messages::Behaviour;

/// How often hours pass in a history, at most: they take the most time to simulate.
const MAX_HOURS: u8 = 4;

/// Which seeds read queues.
const QUEUES: u64 = 0x9e0e_0e5e_ed00;

/// Which seeds have little of everything.
const TIGHT: u64 = 0x7_1647_5eed;

/// Which seeds have pauses.
const PAUSES: u64 = 0x9e0e_0a05_ed00;

const HOUR: Duration = Duration::from_secs(3_600);

impl Plan {
    /// The plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        // Told apart by a number of its own: what reads logs is drawn as if there were no queues.
        if fastrand::Rng::with_seed(seed ^ QUEUES).u8(0..4) == 0 {
            draw.read_queues();
        }
        // Who waits for a retry takes memory: nobody waits for that only where all of them fit.
        draw.config.tight = !draw.config.patience && fastrand::Rng::with_seed(seed ^ TIGHT).u8(0..3) == 0;
        let mut steps = draw.steps();
        // As with queues: what happens without pauses is drawn as if there were none.
        let mut rng = fastrand::Rng::with_seed(seed ^ PAUSES);
        if rng.u8(0..6) == 0 {
            draw.config.pauses = true;
            add_pauses(&mut steps, draw.config.consumers, &mut rng);
        }
        Self { seed, config: draw.config, steps }
    }
}

/// A consumer is paused at some step, and resumed a while later, or only when there is peace.
fn add_pauses(steps: &mut Vec<(Duration, Step)>, consumers: usize, rng: &mut fastrand::Rng) {
    for _ in 0..rng.u8(1..=2) {
        let consumer = rng.usize(0..consumers);
        let at = rng.usize(0..=steps.len());
        steps.insert(at, (Duration::ZERO, Step::Pause(consumer)));
        if rng.u8(0..4) > 0 {
            let later = rng.usize(at + 1..=steps.len());
            steps.insert(later, (Duration::from_secs(rng.u64(0..1_200)), Step::Resume(consumer)));
        }
    }
}

struct Draw {
    rng: fastrand::Rng,
    config: Config,
    kinds: Vec<Kind>,
    keys: u32,
    sent: Vec<Produce>,
    hours: u8,
}

/// A kind of trouble that a history has or has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Copies,
    Poison,
    Crashers,
    InTheWay,
    WithoutId,
    Crash,
    Stop,
    Freeze,
    Rebalance,
    Faults,
    Outage,
    Failover,
    Table,
    DbClock,
    LogChange,
    Offsets,
    Moves,
    Letters,
    Hours,
    App,
    Sink,
    Restarts,
    Cut,
    Down,
    Patience,
}

/// What happens to logs. Cut, Down and Patience are for queues.
const KINDS: [Kind; 22] = [
    Kind::Copies,
    Kind::Poison,
    Kind::Crashers,
    Kind::InTheWay,
    Kind::WithoutId,
    Kind::Crash,
    Kind::Stop,
    Kind::Freeze,
    Kind::Rebalance,
    Kind::Faults,
    Kind::Outage,
    Kind::Failover,
    Kind::Table,
    Kind::DbClock,
    Kind::LogChange,
    Kind::Offsets,
    Kind::Moves,
    Kind::Letters,
    Kind::Hours,
    Kind::App,
    Kind::Sink,
    Kind::Restarts,
];

impl Draw {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kinds: Vec<Kind> = match rng.u8(0..10) {
            // Some things take a few kinds, many times.
            0 => vec![Kind::Copies, Kind::Poison, Kind::Letters, Kind::Hours],
            _ => KINDS.into_iter().filter(|_| rng.u8(0..5) < 2).collect(),
        };
        let rewrites = rng.bool();
        let set_based = rng.u8(0..3) == 0;
        let lanes = if rng.u8(0..3) == 0 { rng.usize(2..=3) } else { 1 };
        let config = Config {
            processes: rng.usize(1..=3),
            consumers: if rng.u8(0..4) == 0 { 2 } else { 1 },
            topics: if rng.u8(0..3) == 0 { 2 } else { 1 },
            partitions: rng.usize(1..=3),
            prefetch: None,
            patience: false,
            lanes,
            batch: rng.usize(1..=12),
            attempts: rng.u32(2..=4),
            crash_limit: rng.u32(1..=3),
            streak_limit: rng.u32(2..=6),
            on_failure: [OnFailure::Park, OnFailure::Park, OnFailure::ParkKey, OnFailure::Halt]
                [rng.usize(0..4)],
            stale: if rng.u8(0..8) == 0 { StalePolicy::Park } else { StalePolicy::Apply },
            start: match rng.u8(0..10) {
                // After a lost database, or in a log that was written anew, that would be the wrong answer.
                0 if !rewrites && !kinds.contains(&Kind::Failover) => StartPolicy::Group,
                1 => StartPolicy::Fail,
                _ => StartPolicy::Earliest,
            },
            by_coordinates: !rewrites && rng.u8(0..6) == 0,
            set_based,
            largest_batch: (set_based && rng.u8(0..3) == 0).then(|| rng.usize(1..=4)),
            relay: kinds.contains(&Kind::Sink) || rng.u8(0..4) == 0,
            keep_published: rng.bool(),
            rewrites,
            log_ids: !rewrites || rng.bool(),
            keep: HOUR,
            purge_every: HOUR / 4,
            // Not more than one clock is wrong.
            skews_ms: if rng.u8(0..4) == 0 && !kinds.contains(&Kind::DbClock) {
                vec![0, -5_400_000, -60_000]
            } else {
                vec![0]
            },
            live_failover: rng.bool(),
            tight: false,
            pauses: false,
        };
        let keys = rng.u32(1..=5);
        Self { rng, config, kinds, keys, sent: Vec::new(), hours: 0 }
    }

    /// The same with queues instead of logs.
    fn read_queues(&mut self) {
        let rng = &mut self.rng;
        // Copies that are older than their receipts need be, behind a message that waits.
        let backlog = rng.u8(0..6) == 0;
        let patience = backlog || rng.u8(0..4) == 0;
        if backlog {
            self.kinds = vec![Kind::Copies, Kind::Down, Kind::Stop];
            self.keys = 1;
            self.config.processes = rng.usize(1..=2);
        }
        self.kinds.retain(|kind| match kind {
            // What was acknowledged is not in the queue any more: a database that forgets it has lost it.
            Kind::Failover | Kind::Rebalance | Kind::LogChange | Kind::Offsets => false,
            // These make others wait.
            Kind::Poison | Kind::Crashers | Kind::InTheWay | Kind::Freeze | Kind::Outage | Kind::Table => {
                !patience
            }
            _ => true,
        });
        self.kinds.extend((rng.u8(0..2) == 0).then_some(Kind::Cut));
        self.kinds.extend((!backlog && rng.u8(0..3) == 0).then_some(Kind::Down));
        self.kinds.extend(patience.then_some(Kind::Patience));
        let config = &mut self.config;
        (config.partitions, config.patience) = (1, patience);
        config.prefetch = Some(rng.usize(1..=30));
        // The place of a message is another one each time that it is delivered.
        (config.by_coordinates, config.rewrites) = (false, false);
        if rng.u8(0..6) == 0 {
            config.on_failure = OnFailure::GiveBack;
        }
        if patience {
            // What waits for its retry counts in the bounds of a stream, and must not fill it.
            config.batch = 60;
            // The first try is mostly in a batch, and counts for nobody.
            config.attempts = config.attempts.max(3);
        }
        config.purge_every = HOUR / 30;
    }

    fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    fn one_in(&mut self, times: u8) -> bool {
        self.rng.u8(0..times) == 0
    }

    fn steps(&mut self) -> Vec<(Duration, Step)> {
        let count = self.rng.usize(12..48);
        let mut steps = Vec::with_capacity(count);
        while steps.len() < count {
            let wait = match self.rng.u8(0..8) {
                0..3 => 0,
                3..6 => self.rng.u64(0..50),
                6 => self.rng.u64(50..2_000),
                _ => self.rng.u64(2_000..30_000),
            };
            let quiet = self.kinds.is_empty() || self.rng.u8(0..10) < 6;
            let trouble = if quiet { None } else { self.trouble() };
            let step = trouble.unwrap_or_else(|| self.produce());
            let down = step == Step::Down;
            steps.push((Duration::from_millis(wait), step));
            if down {
                for _ in 0..self.rng.u8(2..10) {
                    steps.push((Duration::from_millis(1), self.produce()));
                }
                steps.push((self.seconds(600..10_000), Step::Up));
            }
        }
        steps
    }

    fn place(&mut self) -> Place {
        Place {
            topic: self.rng.usize(0..self.config.topics),
            partition: self.rng.usize(0..self.config.partitions),
        }
    }

    fn produce(&mut self) -> Step {
        if self.has(Kind::Copies) && self.one_in(3) && !self.sent.is_empty() {
            let mut copy = self.sent[self.rng.usize(0..self.sent.len())];
            copy.copy = true;
            if self.one_in(3) {
                copy.place = self.place();
            }
            return Step::Produce(copy);
        }
        let mut place = self.place();
        let key = (!self.one_in(6)).then(|| self.rng.u32(0..self.keys));
        if let Some(key) = key {
            place.partition = key as usize % self.config.partitions;
        }
        let produce = Produce {
            place,
            number: u32::try_from(self.sent.len()).unwrap_or(u32::MAX),
            key,
            behaviour: self.behaviour(),
            emits: if self.config.relay { self.rng.u8(0..3) } else { 0 },
            has_id: !(self.has(Kind::WithoutId) && self.one_in(8)),
            clock_off_ms: if self.one_in(10) { self.rng.i64(-400_000_000..400_000_000) } else { 0 },
            copy: false,
        };
        self.sent.push(produce);
        Step::Produce(produce)
    }

    fn behaviour(&mut self) -> Behaviour {
        if self.has(Kind::Patience) && self.one_in(6) {
            return Behaviour::RetriesLater(2);
        }
        if self.has(Kind::Crashers) && self.one_in(8) {
            let times = self.rng.u32(1..=4);
            return if self.rng.bool() { Behaviour::Crashes } else { Behaviour::CrashesTimes(times) };
        }
        if self.has(Kind::InTheWay) && self.one_in(8) {
            return if self.rng.bool() { Behaviour::AlwaysTransient } else { Behaviour::Poisons };
        }
        if self.has(Kind::Poison) && self.one_in(4) {
            return match self.rng.u8(0..6) {
                0 => Behaviour::Rejects,
                1 => Behaviour::Panics,
                2 | 3 => Behaviour::Fails,
                _ => Behaviour::FailsTimes(self.rng.u32(1..=4)),
            };
        }
        Behaviour::Good
    }

    fn seconds(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.rng.u64(range.start * 1_000..range.end * 1_000))
    }

    fn trouble(&mut self) -> Option<Step> {
        let kind = self.kinds[self.rng.usize(0..self.kinds.len())];
        let process = self.rng.usize(0..self.config.processes);
        let consumer = self.rng.usize(0..self.config.consumers);
        let place = self.place();
        let few = self.rng.i64(1..8);
        self.hours += u8::from(kind == Kind::Hours);
        Some(match kind {
            Kind::Copies
            | Kind::Poison
            | Kind::Crashers
            | Kind::InTheWay
            | Kind::WithoutId
            | Kind::Patience => {
                return None;
            }
            Kind::Cut => Step::Cut(process),
            Kind::Down if self.hours > MAX_HOURS => return None,
            Kind::Down => {
                self.hours += 1;
                Step::Down
            }
            Kind::Crash => Step::Crash(process),
            Kind::Stop => Step::StopStart(process),
            Kind::Freeze => Step::Freeze(process, self.seconds(1..200)),
            Kind::Rebalance => Step::Rebalance,
            Kind::Faults => Step::Arm(match self.rng.u8(0..5) {
                0 | 1 => Fault::Deadlock,
                2 => Fault::CommitUndone,
                3 => Fault::CommitAnswerLost,
                _ => Fault::AnswerLost,
            }),
            Kind::Outage => Step::Outage(self.seconds(1..120)),
            Kind::Failover if self.rng.bool() => Step::ReplicaLags,
            Kind::Failover => Step::Failover,
            Kind::Table => Step::TableMissing(self.seconds(1..120)),
            Kind::DbClock => Step::DbClock(self.rng.i64(-12_000_000..12_000_000)),
            Kind::LogChange => self.log_change(place, few),
            Kind::Offsets => match self.rng.u8(0..3) {
                0 => Step::Rewind(consumer, place, few),
                1 => Step::Ahead(consumer, place, few),
                _ => Step::LoseOffsets(consumer),
            },
            Kind::Moves if self.config.prefetch.is_some() => Step::Operate,
            Kind::Moves if self.one_in(3) && !self.config.rewrites => Step::MoveBack(consumer, place, few),
            Kind::Moves => Step::Operate,
            Kind::Letters => match self.rng.u8(0..6) {
                0 => Step::Drop,
                1 => Step::Replay { forced: true },
                _ => Step::Replay { forced: false },
            },
            Kind::Hours if self.hours > MAX_HOURS => return None,
            Kind::Hours => Step::Pass(Duration::from_secs(self.rng.u64(600..10_000))),
            Kind::App => Step::AppEmit(self.rng.u32(0..self.keys)),
            Kind::Sink if self.one_in(4) => Step::RetryEvents,
            Kind::Sink => {
                let mood = match self.rng.u8(0..8) {
                    0 => Mood::Away,
                    1 | 2 => Mood::FailsSome,
                    3 => Mood::RejectsSome,
                    4 => Mood::Hangs,
                    5 | 6 => Mood::LosesAnswers,
                    _ => Mood::Panics,
                };
                Step::Sink(mood, self.seconds(1..900))
            }
            Kind::Restarts => Step::RestartHalted,
        })
    }

    fn log_change(&mut self, place: Place, few: i64) -> Step {
        match self.rng.u8(0..6) {
            0 if self.config.log_ids => Step::Recreate(place.topic),
            1 if self.config.log_ids && self.config.topics > 1 => Step::Delete(place.topic),
            _ if self.config.rewrites => Step::Truncate(place, few),
            2 | 3 => Step::Marker(place),
            4 => Step::Compact(place),
            _ => Step::Expire(place, few),
        }
    }
}
