//! Mistakes that can be put back, to see that the simulation finds them.

use std::cell::Cell;

thread_local! {
    static MADE: Cell<Option<Mistake>> = const { Cell::new(None) };
}

macro_rules! mistakes {
    ($($name:ident = $text:literal,)*) => {
        /// A mistake that a store, a source, the engine or the relay could make.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mistake { $(#[doc = $text] $name,)* }

        impl Mistake {
            /// All of them.
            pub const ALL: &[Mistake] = &[$(Mistake::$name,)*];

            /// What it is, in words.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Mistake::$name => $text,)* }
            }

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Mistake::$name => stringify!($name),)* }
            }
        }
    };
}

mistakes! {
    NoDedupe = "no dedupe: a message with a receipt is applied again",
    SkipOnBusyLock = "skip on busy lock: a receipt in another open transaction counts as applied",
    AckBeforeCommit = "acknowledge before the commit",
    TwoTransactions = "the effect in a transaction of its own",
    PositionWithoutEpoch = "position without epoch: a zombie may commit",
    ForgottenPosition = "a database that failed over to an older state is written on from where the owner is",
    JumpOverGap = "jump over a gap: records that are gone are passed silently",
    KeySpread = "a key spread over lanes",
    BlameNeighbour = "blame a neighbour: a message that may end the process does not run alone",
    PublishBeforeCommit = "publish before the commit",
    CursorRelay = "a relay with a cursor",
    DelayForgotten = "a delayed event is published at once",
    DelayOvertaken = "the later events of its key do not wait for a delayed one",
    DeleteBeforeReport = "delete an event before its delivery is reported",
    LogWithoutIdentity = "a position that knows no log: created anew, rewritten, another cluster",
    HaltOverridden = "the crash guard parks where the partition should halt",
    OrderlyEndCounts = "an attempt that ended in good order counts as a crash",
    AnyCommitIsProgress = "a commit that does not move the position counts as progress",
    TransientNeverCounts = "a message that is in the database's way every time is tried for ever",
    BatchNeverCut = "a batch that is too large is tried for ever",
    PurgeByWallClock = "purge by the wall clock",
    PurgeByDatabaseClock = "purge by the database's clock alone",
    FastestPartition = "retention follows the fastest partition",
    ReplayKeepsAge = "a replay keeps the receipt's old age",
    PauseIgnored = "a paused consumer goes on",
    AnswerBeforeCommit = "queue: acknowledge before the commit",
    NoQueueGuard = "queue: no crash guard for what was delivered before",
    RedeliveredIsDuplicate = "queue: what was delivered before counts as applied",
    RetryLetsPass = "queue: a message that waits for its retry lets its key pass",
    RetryHoldsLane = "queue: a message that waits for its retry holds up everybody",
    EmptyIsCaughtUp = "queue: caught up as soon as it looks empty, whatever is not answered",
    AnsweredIsCaughtUp = "queue: caught up before the acknowledgements have arrived",
}

/// Makes this mistake in this thread from now on. Those of the engine itself need the feature `mistakes`.
pub fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
    #[cfg(feature = "mistakes")]
    oncebox_core::mistake::make_mistake(mistake.map(Mistake::name));
}

/// Whether this mistake is being made.
pub(crate) fn made(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake)
}
