//! `oncebox dead`.

use clap::{Args, Subcommand};

use super::{OutputArg, Page};

/// Which dead letters are meant: numbers, or a filter.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeadSelection {
    /// Numbers of dead letters, as `oncebox dead list` shows them.
    pub(crate) numbers: Vec<i64>,
    /// All of this consumer.
    #[arg(long)]
    pub(crate) consumer: Option<String>,
    /// All of this topic.
    #[arg(long)]
    pub(crate) topic: Option<String>,
    /// All of this tenant.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// All with this message id.
    #[arg(long)]
    pub(crate) message_id: Option<String>,
    /// All with this key.
    #[arg(long)]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadAction {
    /// List dead letters.
    List {
        #[command(flatten)]
        selection: DeadSelection,
        #[command(flatten)]
        page: Page,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Show one dead letter whole.
    Show {
        /// Its number.
        number: i64,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Run the handler again and remove the dead letter, in one transaction.
    Replay {
        #[command(flatten)]
        change: DeadChange,
        /// Also before earlier dead letters of the same key, which `park-key` keeps in order.
        #[arg(long)]
        force: bool,
    },
    /// Remove dead letters for good. Their receipts stay.
    Drop(DeadChange),
}

/// What changes dead letters.
#[derive(Debug, Args)]
pub(crate) struct DeadChange {
    #[command(flatten)]
    pub(crate) selection: DeadSelection,
    /// Everything, when no other filter is given.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only show which ones it would be.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: OutputArg,
}
