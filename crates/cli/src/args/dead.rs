//! `oncebox dead`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::{OutputArg, Page};

/// Which dead letters are meant: numbers, or a filter.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeadSelection {
    /// Numbers of dead letters, as `oncebox dead list` shows them.
    pub(crate) numbers: Vec<i64>,
    /// All of this consumer.
    #[arg(long)]
    pub(crate) consumer: Option<String>,
    /// All of this group, as `oncebox dead groups` shows it.
    #[arg(long)]
    pub(crate) group: Option<String>,
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
    /// All with this text in their error.
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// All that were given up at this time or later, such as 2026-11-01T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Timestamp>,
    /// All that were given up before this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Timestamp>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadAction {
    /// List dead letters.
    List {
        #[command(flatten)]
        selection: DeadSelection,
        #[command(flatten)]
        page: Page,
        /// The newest first.
        #[arg(long)]
        newest_first: bool,
        /// Only below this number: the next page of `--newest-first`.
        #[arg(long, value_name = "NUMBER")]
        before: Option<i64>,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Show which errors there are: dead letters that failed alike, by consumer.
    Groups {
        /// Only of this consumer.
        #[arg(long)]
        consumer: Option<String>,
        /// At most this many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Show one dead letter whole.
    Show {
        /// Its number.
        number: i64,
        /// Write the bytes of its payload and nothing else.
        #[arg(long, conflicts_with = "output")]
        raw: bool,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Write dead letters whole, the newest first, as JSON lines: one document on each line.
    Export {
        #[command(flatten)]
        selection: DeadSelection,
        /// At most this many.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
        /// Only below this number: where the last one ended.
        #[arg(long, value_name = "NUMBER")]
        before: Option<i64>,
    },
    /// Run the handler again and remove the dead letter, in one transaction.
    Replay(DeadReplay),
    /// Change a dead letter before it is replayed. What arrived is kept beside it.
    Edit(DeadEdit),
    /// Remove dead letters for good. Their receipts stay.
    Drop {
        #[command(flatten)]
        change: DeadChange,
        /// Why, for the audit.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
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

/// What is replayed, and how.
#[derive(Debug, Args)]
pub(crate) struct DeadReplay {
    #[command(flatten)]
    pub(crate) change: DeadChange,
    /// At most this many, the oldest first.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// At most so many in a second.
    #[arg(long, value_name = "PER SECOND")]
    pub(crate) rate: Option<NonZeroU32>,
    /// Also before earlier dead letters of the same key, which `park-key` keeps in order.
    #[arg(long)]
    pub(crate) force: bool,
}

/// What is changed of a letter.
#[derive(Debug, Args)]
pub(crate) struct DeadEdit {
    /// Its number.
    pub(crate) number: i64,
    /// Take the payload from this file, `-` is stdin. Without this, a key and headers, $VISUAL or $EDITOR opens.
    #[arg(long, value_name = "FILE")]
    pub(crate) payload: Option<PathBuf>,
    /// Set the key.
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// Set a header, in place of all of that name.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Remove all headers of this name.
    #[arg(long = "remove-header", value_name = "NAME")]
    pub(crate) removed_headers: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputArg,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}
