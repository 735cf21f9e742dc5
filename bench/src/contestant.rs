//! Who takes part, and how each is started.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use clap::Args;
use tokio::process::{Child, Command};

use crate::feed::is_rabbitmq;
use crate::server::{Server, on_server};

/// How many messages of a queue may be under way: for whoever works by hand, and for the daemon, whose batches are half as large.
pub(crate) const PREFETCH: u16 = 2_000;

/// What a contestant of this binary works on.
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The brokers of Kafka, or the URL of RabbitMQ.
    #[arg(long)]
    pub(crate) brokers: String,
    /// The topic, or the queue.
    #[arg(long)]
    pub(crate) topic: String,
    /// The database.
    #[arg(long)]
    pub(crate) store: String,
    /// The consumer's name and Kafka group, one per run: a group of an earlier run has committed offsets.
    #[arg(long)]
    pub(crate) consumer: String,
}

/// A way to apply the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contestant {
    ByHand,
    TwoSteps,
    RustHandler,
    RustSql,
    RustLater,
    Each,
    Batch,
    /// As [`Contestant::Each`], with a slow inbox in the same process.
    BesideSlow,
}

impl Contestant {
    pub(crate) const ON_SQL: [Self; 5] =
        [Self::ByHand, Self::RustHandler, Self::RustSql, Self::Each, Self::Batch];
    pub(crate) const ON_MONGODB: [Self; 6] =
        [Self::ByHand, Self::TwoSteps, Self::RustHandler, Self::RustLater, Self::Each, Self::Batch];
    pub(crate) const ON_RABBITMQ: [Self; 3] = [Self::ByHand, Self::Each, Self::Batch];

    /// Those that take part on the server with this URL.
    pub(crate) fn on(server: &str) -> &'static [Self] {
        on_server!(server, S => S::CONTESTANTS)
    }

    /// Whether it waits for a round trip per message.
    pub(crate) fn is_slow(self) -> bool {
        matches!(self, Self::ByHand | Self::TwoSteps)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ByHand => "one transaction per message, by hand",
            Self::TwoSteps => "receipt, then effects, no transaction",
            Self::RustHandler => "oncebox, Rust handler per message",
            Self::RustSql => "oncebox, Rust, sql_each",
            Self::RustLater => "oncebox, Rust, queued writes",
            Self::Each => "oncebox run, each",
            Self::Batch => "oncebox run, batch",
            Self::BesideSlow => "oncebox run, each, beside a slow inbox",
        }
    }

    /// Starts it.
    pub(crate) fn start(self, daemon: &Path, folder: &Path, job: &Job) -> Result<Child> {
        let mut command = match self {
            Self::ByHand => myself("by-hand", job)?,
            Self::RustHandler => myself("rust-handler", job)?,
            Self::TwoSteps => myself("two-steps", job)?,
            Self::RustSql | Self::RustLater => myself("rust-grouped", job)?,
            Self::Each => daemon_with(daemon, folder, job, &each(job))?,
            Self::Batch => daemon_with(daemon, folder, job, &batch(job))?,
            Self::BesideSlow => daemon_with(daemon, folder, job, &(each(job) + &slow_inbox(job)))?,
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command.spawn().with_context(|| format!("starting {}", self.name()))
    }
}

fn myself(subcommand: &str, job: &Job) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([subcommand, "--brokers", &job.brokers, "--topic", &job.topic, "--store", &job.store]);
    command.args(["--consumer", &job.consumer]);
    Ok(command)
}

/// The effect for the daemon, per message.
fn each(job: &Job) -> String {
    on_server!(&job.store, S => S::each())
}

/// And per batch.
fn batch(job: &Job) -> String {
    on_server!(&job.store, S => S::batch())
}

/// Another consumer of the same topic, on PostgreSQL, that keeps as many transactions open as it can.
fn slow_inbox(job: &Job) -> String {
    format!(
        r#"

[[inbox]]
consumer = "{}-slow"
topics = [{:?}]
id = "header:event_id"
lanes = 8
batch = {{ messages = 1 }}

[inbox.handler]
each = ["SELECT pg_sleep(2)"]
"#,
        job.consumer, job.topic
    )
}

fn daemon_with(daemon: &Path, folder: &Path, job: &Job, handler: &str) -> Result<Command> {
    let Job { brokers, topic, .. } = job;
    let (broker, inbox) = if is_rabbitmq(brokers) {
        let inbox = format!(
            "queue = {topic:?}\nprefetch = {PREFETCH}\nid = \"property:message_id\"\nkey = \"header:sku\""
        );
        (format!("[rabbitmq]\nurl = {brokers:?}"), inbox)
    } else {
        let inbox = format!("topics = [{topic:?}]\nid = \"header:event_id\"");
        (format!("[kafka]\nbrokers = {brokers:?}"), inbox)
    };
    let config = format!(
        r#"[store]
url = "{store}"

{broker}

[[inbox]]
consumer = "{consumer}"
{inbox}
batch = {{ messages = 1000 }}

[inbox.handler]
{handler}
"#,
        store = job.store,
        consumer = job.consumer,
    );
    let file: PathBuf = folder.join("oncebox.toml");
    std::fs::write(&file, config)?;
    let mut command = Command::new(daemon);
    command.args(["run", "--log", "warn", "--config"]).arg(file);
    Ok(command)
}
