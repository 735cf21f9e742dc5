//! `--open`: the dashboard over the demo's database, an ordinary `oncebox dashboard`.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::consumers::Consumers;
use crate::exit::Failure;

/// How long it may take to come up.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How soon it is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Where people expect it.
const USUAL_PORT: u16 = 7878;

/// A running dashboard; it ends with this.
pub(super) struct Open {
    pub(super) url: String,
    _process: Child,
}

impl Open {
    /// With the configuration of the first consumer, which makes the tables: until they are there it is tried again.
    pub(super) async fn start(folder: &Path, consumers: &Consumers<'_>) -> Result<Self, Failure> {
        let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, USUAL_PORT)).is_ok();
        let port = if is_free { USUAL_PORT } else { 0 };
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(open) = Self::try_start(folder, consumers, port).await? {
                return Ok(open);
            }
            if Instant::now() > deadline {
                return Err(Failure::data("the dashboard did not start"));
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// `None` if it ends without saying where it listens.
    async fn try_start(folder: &Path, consumers: &Consumers<'_>, port: u16) -> Result<Option<Self>, Failure> {
        let log = std::fs::File::create(folder.join("dashboard.log"))?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["dashboard", "--listen", &format!("{}:{port}", Ipv4Addr::LOCALHOST), "--config"])
            .arg(consumers.first_config())
            .envs(consumers.variables())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let Some(stdout) = process.stdout.take() else { return Ok(None) };
        let mut lines = BufReader::new(stdout).lines();
        let Ok(line) = tokio::time::timeout(START_LIMIT, lines.next_line()).await else { return Ok(None) };
        Ok(line?.map(|url| Self { url, _process: process }))
    }
}
