//! `oncebox run` as a child process.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use super::command::{oncebox, read, wait};
use super::eventually;

/// Longer than a drain and a group that does not answer together.
const EXIT: Duration = Duration::from_secs(60);

/// A running daemon. Its log is printed if the test fails; dropping it kills it.
pub(crate) struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
    frozen: bool,
}

/// An answer of its HTTP endpoint.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Daemon {
    /// Starts it with the configuration in `folder` and this environment.
    pub(crate) fn start(folder: &Path, name: &str, arguments: &[&str], env: &[(&str, &str)]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).expect("a log file");
        let mut command = oncebox(folder);
        command.arg("run").args(arguments).envs(env.iter().copied());
        command.stdout(file.try_clone().expect("the log file")).stderr(file);
        Self { name: name.to_owned(), child: command.spawn().expect("oncebox starts"), log, frozen: false }
    }

    /// Starts one whose log, of which there is much, goes there.
    pub(crate) fn start_logging_to(folder: &Path, stderr: Stdio) -> Self {
        let mut command = oncebox(folder);
        command.args(["run", "--log", "debug"]).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().expect("oncebox starts");
        Self { name: "the daemon".to_owned(), child, log: folder.join("no.log"), frozen: false }
    }

    /// The log of one that was given a pipe.
    pub(crate) fn pipe(&mut self) -> ChildStderr {
        self.child.stderr.take().expect("a pipe")
    }

    /// Everything this daemon, and those that had its name before, have written.
    pub(crate) fn log(&self) -> String {
        read(&self.log)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the process can be asked").is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap_or_else(|e| panic!("{signal} to {}: {e}", self.name));
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    /// SIGKILL: no warning, no drain.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// SIGSTOP: it stands still and does not know it.
    pub(crate) fn freeze(&mut self) {
        self.signal(Signal::SIGSTOP);
        self.frozen = true;
        // On a busy machine some of its threads run on for a while.
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED));
        assert!(matches!(stopped, Ok(WaitStatus::Stopped(..))), "freezing {}: {stopped:?}", self.name);
    }

    /// SIGCONT.
    pub(crate) fn thaw(&mut self) {
        self.signal(Signal::SIGCONT);
        self.frozen = false;
    }

    /// SIGTERM, and waits for the end, which has to be exit code 0. Returns the whole log.
    #[track_caller]
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::SIGTERM);
        let (name, log) = (self.name.clone(), self.log.clone());
        let status = self.exited();
        assert_eq!(status.code(), Some(0), "{name} after SIGTERM: {status}");
        read(&log)
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub(crate) fn exited(mut self) -> ExitStatus {
        wait(&mut self.child, EXIT).unwrap_or_else(|| panic!("{} has not ended within {EXIT:?}", self.name))
    }

    /// Waits until the failpoint has ended it.
    #[track_caller]
    pub(crate) fn crashed(self) {
        let name = self.name.clone();
        let status = self.exited();
        assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "{name} should have aborted: {status}");
    }

    /// Waits until it has logged this.
    pub(crate) async fn has_logged(&self, text: &str) {
        eventually(&format!("{} logs {text:?}", self.name), async || self.log().contains(text)).await;
    }

    /// Waits until `/readyz` says yes.
    pub(crate) async fn ready(&self) {
        eventually(&format!("{} is ready", self.name), async || {
            self.get("/readyz").await.is_some_and(|page| page.status == 200)
        })
        .await;
    }

    /// Asks its HTTP endpoint; `None` as long as there is none.
    pub(crate) async fn get(&self, path: &str) -> Option<Page> {
        let address = self.address()?;
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || get(address, &path).ok()).await.expect("no panic")
    }

    /// `/healthz` as JSON, with its status.
    pub(crate) async fn health(&self) -> Option<(u16, Value)> {
        let page = self.get("/healthz").await?;
        Some((page.status, serde_json::from_str(&page.body).expect("/healthz is JSON")))
    }

    /// The value of a metric, by its name and labels as `/metrics` writes them.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let page = self.get("/metrics").await?;
        let value = page.body.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        value.parse().ok()
    }

    /// The memory it has now.
    pub(crate) fn resident_bytes(&self) -> f64 {
        let status = read(Path::new(&format!("/proc/{}/status", self.pid())));
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024.0
    }

    /// The partitions of the topic that this daemon owns, as `/healthz` shows them.
    pub(crate) async fn partitions(&self, topic: &str) -> Vec<i32> {
        let Some((_, health)) = self.health().await else { return Vec::new() };
        let loops = health["loops"].as_array().cloned().unwrap_or_default();
        let place = |l: &Value| l["detail"].as_str()?.strip_prefix(topic)?.strip_prefix('/')?.parse().ok();
        loops.iter().filter_map(place).collect()
    }

    /// Where it listens: the port is chosen by the system and told in the log.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let log = self.log();
        let line = log.lines().rev().find(|line| line.contains("listening: /healthz"))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.trim_matches('"').parse().ok()
    }

    fn end(&mut self) {
        if self.is_running() {
            self.child.kill().expect("the process can be killed");
            self.child.wait().expect("the process ends");
        }
    }
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<Page> {
    let limit = Duration::from_secs(10);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let malformed = || std::io::Error::other("no HTTP answer");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(malformed)?;
    Ok(Page { status, body: body.to_owned() })
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.frozen {
            self.thaw();
        }
        self.end();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<String> = log.lines().map(|line| line.chars().take(300).collect()).collect();
            let shown = lines[lines.len().saturating_sub(60)..].join("\n");
            eprintln!("---- the log of {} ({} lines) ----\n{shown}\n----", self.name, lines.len());
        }
    }
}
