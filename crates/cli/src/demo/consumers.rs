//! The consumer processes: ordinary `oncebox run`, killed while they work and started again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::broker::Broker;
use super::database::Database;
use super::{CONSUMER, PROCESSES};
use crate::exit::Failure;

pub(crate) struct Consumers {
    folder: PathBuf,
    processes: Vec<Child>,
    kills: u32,
}

impl Consumers {
    pub(crate) async fn start(folder: &Path, broker: &Broker, database: &Database) -> Result<Self, Failure> {
        let mut processes = Vec::new();
        for nth in 0..PROCESSES {
            fs::write(config_file(folder, nth), config(nth, broker, database))?;
            processes.push(spawn(folder, nth)?);
        }
        Ok(Self { folder: folder.to_owned(), processes, kills: 0 })
    }

    pub(crate) fn kills(&self) -> u32 {
        self.kills
    }

    /// SIGKILL: no warning, no drain.
    pub(crate) async fn kill_one(&mut self) -> Result<(), Failure> {
        let nth = self.kills as usize % self.processes.len();
        self.processes[nth].kill().await?;
        self.kills += 1;
        self.processes[nth] = spawn(&self.folder, nth)?;
        Ok(())
    }

    /// Starts again what ended by itself.
    pub(crate) async fn revive(&mut self) -> Result<(), Failure> {
        for nth in 0..self.processes.len() {
            if self.processes[nth].try_wait()?.is_some() {
                tokio::time::sleep(Duration::from_millis(200)).await;
                self.processes[nth] = spawn(&self.folder, nth)?;
            }
        }
        Ok(())
    }

    /// SIGTERM: drain and leave.
    pub(crate) async fn stop(&mut self) {
        for process in &self.processes {
            if let Some(pid) = process.id().and_then(|pid| i32::try_from(pid).ok()) {
                kill(Pid::from_raw(pid), Signal::SIGTERM).ok();
            }
        }
        for process in &mut self.processes {
            if tokio::time::timeout(Duration::from_secs(20), process.wait()).await.is_err() {
                process.kill().await.ok();
            }
        }
    }

    /// The end of the consumers' log, for when something went wrong.
    pub(crate) fn last_words(&self) -> Option<String> {
        let text: String = (0..self.processes.len())
            .filter_map(|nth| fs::read_to_string(log_file(&self.folder, nth)).ok())
            .collect();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        (!tail.is_empty()).then_some(tail)
    }
}

fn config_file(folder: &Path, nth: usize) -> PathBuf {
    folder.join(format!("consumer-{nth}.toml"))
}

fn log_file(folder: &Path, nth: usize) -> PathBuf {
    folder.join(format!("consumer-{nth}.log"))
}

fn spawn(folder: &Path, nth: usize) -> Result<Child, Failure> {
    let log = File::options().create(true).append(true).open(log_file(folder, nth))?;
    let child = Command::new(std::env::current_exe()?)
        .args(["run", "--log", "warn", "--config"])
        .arg(config_file(folder, nth))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}

/// What a user would write, with small batches so that a kill finds many transactions to interrupt.
fn config(nth: usize, broker: &Broker, database: &Database) -> String {
    let [update, insert] = database.statements();
    format!(
        r#"[store]
url = "{url}"
max_connections = 4

[kafka]
brokers = "{brokers}"
[kafka.properties]
"session.timeout.ms" = "{session}"
"heartbeat.interval.ms" = "500"
"client.id" = "consumer-{nth}"

[[inbox]]
consumer = "{CONSUMER}"
topics = ["{topic}"]
id = "header:event_id"
batch = {{ messages = 50 }}

[inbox.handler]
each = [
  {{ sql = "{update}", rows = 1 }},
  {{ sql = "{insert}", rows = 1 }},
]
"#,
        url = database.url(),
        brokers = broker.servers,
        session = broker.session_timeout_ms(),
        topic = broker.topic,
    )
}
