//! The plan of a history: settings and steps, all drawn from the seed before anything runs. A plan can be cut shorter and run
//! again.

mod draw;

use std::fmt;
use std::time::Duration;

use oncebox_core::inbox::{OnFailure, StalePolicy, StartPolicy};

use crate::messages::Behaviour;

/// Where a record goes: the index of a topic and of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) topic: usize,
    pub(crate) partition: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}/{}", self.topic, self.partition)
    }
}

/// What stays the same throughout a history.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) processes: usize,
    pub(crate) consumers: usize,
    pub(crate) topics: usize,
    pub(crate) partitions: usize,
    /// The source are queues instead of logs (topics are their names), and a channel holds at most so many messages
    /// unacknowledged.
    pub(crate) prefetch: Option<usize>,
    /// Nothing takes long but messages that want to be tried again much later.
    pub(crate) patience: bool,
    pub(crate) lanes: usize,
    pub(crate) batch: usize,
    pub(crate) attempts: u32,
    pub(crate) crash_limit: u32,
    pub(crate) streak_limit: u32,
    pub(crate) on_failure: OnFailure,
    pub(crate) stale: StalePolicy,
    pub(crate) start: StartPolicy,
    /// The id is where the message stands, not what it says.
    pub(crate) by_coordinates: bool,
    /// One handler call for a batch instead of one for each message.
    pub(crate) set_based: bool,
    /// A set-based handler fails on batches of more messages.
    pub(crate) largest_batch: Option<usize>,
    pub(crate) relay: bool,
    /// Published events stay for a while.
    pub(crate) keep_published: bool,
    /// Logs are cut and written on; then nothing else may take records away or forget what was read, or nobody could notice.
    pub(crate) rewrites: bool,
    /// The broker tells the identity of its logs.
    pub(crate) log_ids: bool,
    pub(crate) keep: Duration,
    pub(crate) purge_every: Duration,
    pub(crate) skews_ms: Vec<i64>,
    /// The processes survive a failover of the database.
    pub(crate) live_failover: bool,
    /// Inboxes have one connection each, the relay two, and a process has memory for a few messages.
    pub(crate) tight: bool,
    /// Consumers are paused and resumed.
    pub(crate) pauses: bool,
}

impl Config {
    /// Every topic with its partitions.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        let partitions = self.partitions;
        (0..self.topics)
            .flat_map(move |topic| (0..partitions).map(move |partition| Place { topic, partition }))
    }
}

/// A record that a producer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Produce {
    pub(crate) place: Place,
    pub(crate) number: u32,
    pub(crate) key: Option<u32>,
    pub(crate) behaviour: Behaviour,
    pub(crate) emits: u8,
    pub(crate) has_id: bool,
    /// How wrong the producer's clock is.
    pub(crate) clock_off_ms: i64,
    pub(crate) copy: bool,
}

/// Something that goes wrong once, the next time it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The statement becomes a deadlock's victim.
    Deadlock,
    /// The connection breaks before the commit.
    CommitUndone,
    /// The commit is done, its answer is lost.
    CommitAnswerLost,
    /// Some other operation of the store loses its answer.
    AnswerLost,
}

/// How the sink feels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Nobody is there.
    Away,
    /// Some events fail.
    FailsSome,
    /// Some events are refused for good.
    RejectsSome,
    /// Never answers.
    Hangs,
    /// Takes events and does not say so.
    LosesAnswers,
    /// Panics.
    Panics,
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Produce(Produce),
    Marker(Place),
    Pass(Duration),
    Crash(usize),
    StopStart(usize),
    Freeze(usize, Duration),
    Rebalance,
    /// The connection of a process to the broker is lost.
    Cut(usize),
    /// Everybody is told to stop, and stays down.
    Down,
    /// Everybody is back.
    Up,
    Arm(Fault),
    Outage(Duration),
    TableMissing(Duration),
    /// From here on the replica lags behind.
    ReplicaLags,
    Failover,
    /// The database's clock is wrong by so much from now on.
    DbClock(i64),
    Truncate(Place, i64),
    Recreate(usize),
    Delete(usize),
    Compact(Place),
    Expire(Place, i64),
    Rewind(usize, Place, i64),
    Ahead(usize, Place, i64),
    LoseOffsets(usize),
    MoveBack(usize, Place, i64),
    /// Operators look after what stands still.
    Operate,
    /// A supervisor restarts what stands still, without a cure.
    RestartHalted,
    Replay {
        forced: bool,
    },
    Drop,
    AppEmit(u32),
    Sink(Mood, Duration),
    RetryEvents,
    /// A consumer is paused.
    Pause(usize),
    Resume(usize),
}

/// A history to be run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) config: Config,
    /// Each after a wait.
    pub(crate) steps: Vec<(Duration, Step)>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Produce(p) => {
                write!(f, "produce m{}", p.number)?;
                if let Some(key) = p.key {
                    write!(f, " k{key}")?;
                }
                write!(f, " to {}", p.place)?;
                if p.behaviour != Behaviour::Good {
                    write!(f, " {:?}", p.behaviour)?;
                }
                if !p.has_id {
                    write!(f, " without id")?;
                }
                if p.copy { write!(f, " (copy)") } else { Ok(()) }
            }
            other => write!(f, "{other:?}"),
        }
    }
}
