//! The command line.

mod adopt;
mod dead;
mod outbox;
mod position;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use oncebox_core::names::ConsumerName;

pub(crate) use adopt::AdoptArgs;
pub(crate) use dead::{DeadAction, DeadChange, DeadEdit, DeadReplay, DeadSelection};
pub(crate) use outbox::{OutboxAction, OutboxChange, OutboxSelection};
pub(crate) use position::{PositionAction, PositionMove, To};

/// Where help shows what every command takes.
const GLOBAL: &str = "Global options";

/// Every message changes your database once.
#[derive(Debug, Parser)]
#[command(name = "oncebox", version, long_version = crate::versions::long(), propagate_version = true)]
pub(crate) struct Cli {
    /// The configuration file.
    #[arg(long, global = true, env = "ONCEBOX_CONFIG", default_value = "oncebox.toml", value_name = "FILE", help_heading = GLOBAL)]
    pub(crate) config: PathBuf,

    /// How log lines look (on stderr).
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, help_heading = GLOBAL)]
    pub(crate) log_format: LogFormat,

    /// Who acts, for the audit.
    #[arg(long, global = true, env = "USER", default_value = "somebody", value_name = "NAME", help_heading = GLOBAL)]
    pub(crate) by: String,

    /// What is logged, such as `info` or `oncebox=debug`. At `debug` the values of messages are, too: see the guide.
    #[arg(long, global = true, env = "ONCEBOX_LOG", value_name = "FILTER", help_heading = GLOBAL)]
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
    /// Serve the dashboard alone: what happens, what failed and why, and how to put it right. `oncebox run` serves it too.
    Dashboard {
        /// The address to listen on, instead of the one under [http].
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Show consumers, positions, lag, suppressed duplicates, dead letters and the outbox.
    Status {
        /// Show it again every so many seconds, until Ctrl-C.
        #[arg(
            long,
            value_name = "SECONDS",
            num_args = 0..=1,
            default_missing_value = "2",
            value_parser = clap::value_parser!(u64).range(1..=86_400)
        )]
        watch: Option<u64>,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Look at dead letters, change, replay or drop them.
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
    /// Let a consumer take nothing new, in every process, until it is resumed.
    Pause {
        /// The consumer.
        consumer: String,
        /// Why, for whoever finds it paused.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Also if neither the configuration nor the database knows it.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Let a paused consumer go on.
    Resume {
        /// The consumer.
        consumer: String,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Tell what became of one message: receipts, dead letters, the events that it caused.
    Find {
        /// The id of the message.
        id: String,
        /// Only with this consumer.
        #[arg(long)]
        consumer: Option<ConsumerName>,
        /// Of this tenant.
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Show who did what, the newest first.
    Audit(AuditArgs),
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

/// Which entries of the audit are shown.
#[derive(Debug, Clone, Args)]
pub(crate) struct AuditArgs {
    /// At most this many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Only below this number: the next page.
    #[arg(long)]
    pub(crate) before: Option<i64>,
    /// Only this action, such as `replay` or `position move`.
    #[arg(long)]
    pub(crate) action: Option<String>,
    /// Only to this consumer.
    #[arg(long)]
    pub(crate) consumer: Option<String>,
    /// Only by this one, such as `cli:ana`.
    #[arg(long)]
    pub(crate) who: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArg,
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
    /// Serve the dashboard meanwhile, and stay until Ctrl-C.
    #[arg(long)]
    pub(crate) open: bool,
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
