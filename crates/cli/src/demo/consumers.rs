//! The consumer processes: ordinary `oncebox run`, killed while they work and started again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::courier::{Courier, Sections};
use super::database::Database;
use super::{CONSUMER, PROCESSES};
use crate::exit::Failure;

/// The variable that tells consumers the URL of the database: there may be a password in it, which no file should hold.
const STORE_VARIABLE: &str = "ONCEBOX_DEMO_STORE";

pub(crate) struct Consumers<'a> {
    folder: PathBuf,
    courier: &'a Courier,
    database: &'a Database,
    processes: Vec<Child>,
    lives: u32,
    kills: u32,
}

impl<'a> Consumers<'a> {
    pub(crate) fn start(
        folder: &Path,
        courier: &'a Courier,
        database: &'a Database,
    ) -> Result<Self, Failure> {
        let mut consumers =
            Self { folder: folder.to_owned(), courier, database, processes: Vec::new(), lives: 0, kills: 0 };
        for nth in 0..PROCESSES {
            let process = consumers.spawn(nth)?;
            consumers.processes.push(process);
        }
        Ok(consumers)
    }

    fn spawn(&mut self, nth: usize) -> Result<Child, Failure> {
        self.lives += 1;
        let file = config_file(&self.folder, nth);
        fs::write(&file, config(&self.courier.sections(nth, self.lives), self.database))?;
        let log = File::options().create(true).append(true).open(log_file(&self.folder, nth))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["run", "--log", "info,sqlx=warn", "--config"])
            .arg(file)
            .envs(self.variables())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        Ok(child)
    }

    /// The configuration of the first one.
    pub(crate) fn first_config(&self) -> PathBuf {
        config_file(&self.folder, 0)
    }

    /// What its configuration wants from the environment.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let store = (STORE_VARIABLE.to_owned(), self.database.url().to_owned());
        let of_courier =
            self.courier.variable().into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        std::iter::once(store).chain(of_courier).collect()
    }

    pub(crate) fn kills(&self) -> u32 {
        self.kills
    }

    /// SIGKILL: no warning, no drain.
    pub(crate) async fn kill_one(&mut self) -> Result<(), Failure> {
        let nth = self.kills as usize % self.processes.len();
        self.processes[nth].kill().await?;
        self.kills += 1;
        self.processes[nth] = self.spawn(nth)?;
        Ok(())
    }

    /// Starts again what ended by itself.
    pub(crate) async fn revive(&mut self) -> Result<(), Failure> {
        for nth in 0..self.processes.len() {
            if self.processes[nth].try_wait()?.is_some() {
                tokio::time::sleep(Duration::from_millis(200)).await;
                self.processes[nth] = self.spawn(nth)?;
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

    /// SIGKILL to all of them.
    pub(crate) async fn kill(&mut self) {
        for process in &mut self.processes {
            process.kill().await.ok();
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

/// What a user would write, with small batches so that a kill finds many transactions to interrupt.
fn config(sections: &Sections, database: &Database) -> String {
    let [update, insert] = database.steps();
    let Sections { broker, inbox } = sections;
    format!(
        r#"[store]
url = "${{{STORE_VARIABLE}}}"
max_connections = 4

{broker}
[[inbox]]
consumer = "{CONSUMER}"
{inbox}
batch = {{ messages = 50 }}

[inbox.handler]
each = [
  {update},
  {insert},
]
"#
    )
}
