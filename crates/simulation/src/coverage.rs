//! What happened in the histories, counted: a kind of trouble that never happens proves nothing.

use std::fmt::Write as _;

macro_rules! events {
    ($($name:ident = $text:literal,)*) => {
        /// Something that happens in a history.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Event { $(#[doc = $text] $name,)* }

        impl Event {
            /// All of them.
            pub const ALL: &[Event] = &[$(Event::$name,)*];

            /// What it is, in words.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Event::$name => $text,)* }
            }
        }
    };
}

events! {
    Applied = "message applied",
    DuplicateProduced = "duplicate by a producer",
    DuplicateSkipped = "duplicate skipped",
    WaitedForReceipt = "claim waited for another transaction",
    Parked = "message parked",
    ParkedStale = "message parked as too old to tell",
    ParkedBehind = "message parked behind its key",
    Unfit = "message without an id",
    PlaceTaken = "message without an id lost: a letter of the rewritten log has its place",
    Replayed = "dead letter replayed",
    ReplayedForced = "dead letter replayed out of order",
    ReplayBehind = "replay refused: an earlier letter first",
    Dropped = "dead letter dropped",
    Failed = "handler failed",
    Rejected = "handler rejected",
    Panicked = "handler panicked",
    CrashedProcess = "handler ended the process",
    GuardedAttempt = "attempt written down by the crash guard",
    AlwaysTransient = "message in the database's way every time",
    BatchTooLarge = "batch too large for the database",
    Poisoned = "handler left its transaction unusable",
    TableMissing = "a table was missing",
    Deadlock = "deadlock",
    Outage = "database away",
    LostAnswerCommitted = "commit answer lost, committed",
    LostAnswerUndone = "commit answer lost, undone",
    Failover = "failover to an older state",
    ClockForward = "database clock jumped ahead",
    ClockBack = "database clock jumped back",
    Fenced = "zombie fenced",
    Crash = "process killed",
    CleanStop = "process stopped in good order",
    Freeze = "process frozen",
    Rebalance = "rebalance",
    OwnershipTaken = "partition taken from an owner that still works",
    IdleTransactionEnded = "server ended an idle transaction",
    Truncated = "log truncated and written on",
    Recreated = "topic created anew",
    TopicDeleted = "topic deleted",
    Compacted = "log compacted",
    Expired = "oldest records removed",
    ExpiredUnread = "oldest records removed before they were applied",
    Marker = "transaction marker in the log",
    Rewound = "group rewound",
    CommittedAhead = "group offset set ahead",
    OffsetsLost = "group offsets lost",
    StopGap = "stopped: gap",
    StopTruncated = "stopped: log is shorter",
    StopOtherLog = "stopped: another log",
    StopRewritten = "stopped: log was rewritten",
    StopGroupOnly = "stopped: only the group knows",
    Halted = "stopped: halted at a message",
    RestartedHalted = "halted partition restarted without a cure",
    MovedBack = "position moved back",
    MovedForward = "position moved forward, loss accepted",
    Retired = "position retired",
    Mended = "operator mended a message",
    DayPassed = "hours passed",
    Paused = "consumer paused",
    Resumed = "paused consumer resumed",
    Purged = "receipt purged",
    PurgeHeld = "receipts held by a partition that stands still",
    DoubleAfterRetention = "copy applied again after the retention",
    Emitted = "event emitted by a handler",
    AppEmitted = "event emitted by an application",
    Published = "event published",
    PublishedAgain = "event published again",
    SinkAway = "sink away",
    SinkFailedOne = "sink failed one event",
    SinkRejected = "sink rejected an event",
    SinkHung = "sink hung until it was dropped",
    SinkLostAnswer = "sink delivered and lost the answer",
    SinkPanicked = "sink panicked",
    EventDelayed = "event held until its time",
    EventExpired = "event parked because its time was over",
    EventRetried = "parked event retried by an operator",
    LeaseLost = "relay lost a shard",
    Delivered = "queue: delivered for the first time",
    Redelivered = "queue: delivered again",
    ConnectionCut = "queue: connection lost",
    ConsumerTimeout = "queue: channel ended because it was too slow",
    AnswerLost = "queue: answer lost with its channel",
    GivenBack = "queue: message given back",
    QueueHalted = "queue: process stands still",
    TakenOut = "queue: message taken out by an operator",
    RetriedLater = "queue: message wants to be tried much later",
    AllDown = "queue: nobody reads for hours",
}

/// How often each [`Event`] happened.
#[derive(Debug, Clone)]
pub struct Coverage(Vec<u64>);

impl Default for Coverage {
    fn default() -> Self {
        Self(vec![0; Event::ALL.len()])
    }
}

impl Coverage {
    pub(crate) fn count(&mut self, event: Event) {
        self.0[event as usize] += 1;
    }

    /// Adds what another history has seen.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// How often it happened.
    #[must_use]
    pub fn of(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// What never happened.
    #[must_use]
    pub fn missing(&self) -> Vec<Event> {
        Event::ALL.iter().copied().filter(|event| self.of(*event) == 0).collect()
    }

    /// The numbers in one line, for another process.
    #[must_use]
    pub fn to_line(&self) -> String {
        self.0.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
    }

    /// The other way round. `None` if it is not such a line.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Self> {
        let counts: Vec<u64> = line.split(' ').map(|count| count.parse().ok()).collect::<Option<_>>()?;
        (counts.len() == Event::ALL.len()).then_some(Self(counts))
    }

    /// A table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = String::new();
        for event in Event::ALL {
            // Writing to a string cannot fail.
            writeln!(table, "{:>12}  {}", self.of(*event), event.text()).ok();
        }
        table
    }
}
