//! The command line.

mod adopt;
mod dead;
mod outbox;
mod position;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use adopt::AdoptArgs;
pub(crate) use dead::{DeadAction, DeadChange, DeadSelection};
pub(crate) use outbox::{OutboxAction, OutboxChange, OutboxSelection};
pub(crate) use position::{PositionAction, PositionMove, To};

/// Every message changes your database once.
#[derive(Debug, Parser)]
#[command(name = "oncebox", version, long_version = crate::versions::long(), propagate_version = true)]
pub(crate) struct Cli {
    /// The configuration file.
    #[arg(long, global = true, env = "ONCEBOX_CONFIG", default_value = "oncebox.toml", value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// How log lines look (on stderr).
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// What is logged, such as `info` or `oncebox=debug`.
    #[arg(long, global = true, env = "ONCEBOX_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// How the answer is printed on stdout.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArg {
    /// How the answer is printed.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Which page of a list is printed.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Page {
    /// At most this many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Only above this number: the next page.
    #[arg(long, default_value_t = 0)]
    pub(crate) after: i64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what oncebox does: duplicates, killed processes, and a verdict counted from the database.
    Demo(DemoArgs),
    /// Write a commented oncebox.toml.
    Init {
        /// Overwrite an existing file.
        #[arg(long)]
        force: bool,
    },
    /// Look at configuration, database, schema, broker, topics, retention and durability.
    Check {
        #[command(flatten)]
        output: OutputArg,
    },
    /// Create or update oncebox's tables.
    Migrate {
        #[command(subcommand)]
        action: Option<MigrateAction>,
    },
    /// Run everything the configuration declares, until SIGTERM or SIGINT.
    Run,
    /// Show consumers, positions, lag, suppressed duplicates, dead letters and the outbox.
    Status {
        #[command(flatten)]
        output: OutputArg,
    },
    /// Look at dead letters, replay or drop them.
    Dead {
        #[command(subcommand)]
        action: DeadAction,
    },
    /// Look at the events of the outbox, retry or drop them.
    Outbox {
        #[command(subcommand)]
        action: OutboxAction,
    },
    /// Show where each consumer is, move it, or let go of a topic that is gone.
    Position {
        #[command(subcommand)]
        action: PositionAction,
    },
    /// Remove old receipts and published events now.
    Purge {
        /// Only count what would be removed.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Print a completion script for your shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// How many different messages are produced; copies come on top.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) messages: u32,
    /// How many consumer processes are killed while they work.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) kills: u32,
    /// A database of your own instead of a temporary SQLite file. Its oncebox_demo_* tables are replaced, and removed in the
    /// end; oncebox's own tables stay.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// How the messages travel.
    #[arg(long, value_enum, default_value_t = DemoSource::Kafka)]
    pub(crate) source: DemoSource,
    /// A Kafka of your own instead of the one in this process.
    #[arg(long, value_name = "LIST")]
    pub(crate) brokers: Option<String>,
    /// The RabbitMQ for `--source rabbitmq`. A queue is made there, and removed in the end.
    #[arg(long, value_name = "URL")]
    pub(crate) rabbitmq: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArg,
}

/// How the messages of the demo travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoSource {
    /// Through Kafka.
    Kafka,
    /// Through a queue of RabbitMQ: say which with `--rabbitmq`.
    Rabbitmq,
    /// As HTTP requests, whose senders wait for the answer.
    Http,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum MigrateAction {
    /// Apply what is missing (the default).
    Up,
    /// Show which migrations the database has.
    Status {
        #[command(flatten)]
        output: OutputArg,
    },
    /// Print the statements without running them.
    Sql,
    /// Copy the receipts of a table of your own into oncebox's, then switch to it.
    Adopt(AdoptArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
