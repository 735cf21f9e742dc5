//! `oncebox outbox`.

use clap::{Args, Subcommand, ValueEnum};
use oncebox_core::store::EventState;
use uuid::Uuid;

use super::{OutputArg, Page};

/// Which events are meant: numbers, or a filter.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutboxSelection {
    /// Numbers of events, as `oncebox outbox list` shows them.
    pub(crate) numbers: Vec<i64>,
    /// All in this state.
    #[arg(long, value_enum)]
    pub(crate) state: Option<State>,
    /// All of this topic.
    #[arg(long)]
    pub(crate) topic: Option<String>,
    /// All with this key.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// The one with this id.
    #[arg(long)]
    pub(crate) id: Option<Uuid>,
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    /// Waits to be published.
    Pending,
    /// Its time has not come.
    Delayed,
    /// Its delivery failed: it waits for its next try, or behind one that does, or behind a delayed one.
    Held,
    /// Given up.
    Parked,
    /// Published, and kept for a while.
    Published,
}

impl From<State> for EventState {
    fn from(state: State) -> Self {
        match state {
            State::Pending => Self::Pending,
            State::Delayed => Self::Delayed,
            State::Held => Self::Held,
            State::Parked => Self::Parked,
            State::Published => Self::Published,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxAction {
    /// List events: without --state all that are not published.
    List {
        #[command(flatten)]
        selection: OutboxSelection,
        #[command(flatten)]
        page: Page,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Show one event whole.
    Show {
        /// Its number.
        number: i64,
        /// Write the bytes of its payload and nothing else.
        #[arg(long, conflicts_with = "output")]
        raw: bool,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Publish parked and held events again, at once; with --state delayed, those whose time has not come.
    Retry(OutboxChange),
    /// Give up events that wait to be published, so that what is behind them goes on. `retry` brings them back.
    Park {
        #[command(flatten)]
        change: OutboxChange,
        /// Why: it stands beside the event, and in the audit.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Remove events for good: without --state only parked ones.
    Drop(OutboxChange),
}

/// What changes events.
#[derive(Debug, Args)]
pub(crate) struct OutboxChange {
    #[command(flatten)]
    pub(crate) selection: OutboxSelection,
    /// Everything, when no other filter is given.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only show which ones it would be.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: OutputArg,
}
