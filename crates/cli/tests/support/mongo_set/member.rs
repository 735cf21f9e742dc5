//! One `mongod`, which can be killed, frozen and started again with the data that it has.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::ANSWER;
use crate::support::command::read;
use crate::support::{eventually, service};

/// Below the ports that the system hands out by itself: while a member is down, nobody else gets its port.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// A member of a set, or one that stands alone. Dropping it kills it.
pub(crate) struct Member {
    program: String,
    options: Vec<String>,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Member {
    /// A new one, without data, on a port of its own.
    pub(super) async fn start_new(folder: &Path, options: &[&str]) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let program = service("ONCEBOX_TEST_MONGOD");
        let mut member = Self { program, options, folder: folder.to_owned(), port: 0, child: None };
        // Between the look and the server's own bind another process may take the port.
        for _ in 0..5 {
            member.port = free_port();
            fs::create_dir(&member.folder).expect("a folder");
            if member.comes_up().await {
                return member;
            }
            fs::remove_dir_all(&member.folder).expect("the folder goes");
        }
        panic!("mongod does not start: {}", read(&member.log()));
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    /// Starts it again with the data that it has.
    pub(crate) async fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.address());
        assert!(self.comes_up().await, "mongod does not start again: {}", read(&self.log()));
    }

    /// Starts it; false if it ends instead of listening.
    async fn comes_up(&mut self) -> bool {
        let file = File::create(self.log()).expect("a log file");
        let mut command = Command::new(&self.program);
        command.args(&self.options).args(["--bind_ip", "127.0.0.1", "--nounixsocket"]);
        command.args(["--port", &self.port.to_string(), "--wiredTigerCacheSizeGB", "0.25", "--dbpath"]);
        command.arg(&self.folder).stdin(Stdio::null());
        command.stdout(file.try_clone().expect("the log file")).stderr(file);
        let mut child = command.spawn().expect("mongod can be run");
        let mut listens = false;
        eventually(&format!("{} listens", self.address()), async || {
            // The port could be another server's; the log is its own.
            listens = read(&self.log()).contains("Waiting for connections");
            listens || child.try_wait().expect("the process can be asked").is_some()
        })
        .await;
        self.child = listens.then_some(child);
        listens
    }

    /// SIGKILL: no warning, no hand-over.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("mongod can be killed");
        child.wait().expect("mongod ends");
    }

    /// SIGSTOP: it stands still, and its connections stay open.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED));
        assert!(matches!(stopped, Ok(WaitStatus::Stopped(..))), "freezing {}: {stopped:?}", self.address());
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap_or_else(|e| panic!("{signal} to {}: {e}", self.address()));
    }

    fn pid(&self) -> Pid {
        let child = self.child.as_ref().expect("it runs");
        Pid::from_raw(i32::try_from(child.id()).expect("a process id"))
    }

    /// What it says of itself.
    pub(super) async fn hello(&self) -> Result<Document, String> {
        self.run(doc! { "hello": 1 }).await
    }

    /// Runs a command on this member, whatever it is in the set.
    pub(super) async fn run(&self, command: Document) -> Result<Document, String> {
        let answer = async {
            let url = format!("mongodb://{}/?directConnection=true", self.address());
            let mut options = ClientOptions::parse(url).await?;
            options.server_selection_timeout = Some(ANSWER);
            options.connect_timeout = Some(ANSWER);
            let client = Client::with_options(options)?;
            let answer = client.database("admin").run_command(command).await;
            client.shutdown().immediate(true).await;
            answer
        };
        let answer = tokio::time::timeout(2 * ANSWER, answer).await;
        answer.map_err(|_| format!("{} does not answer", self.address()))?.map_err(|e| e.to_string())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Also one that stands still.
        if self.child.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            let log = read(&self.log());
            // What it became, and what it complains about.
            let tells = |line: &&str| {
                [":\"REPL", ":\"ELECTION", "\"F\"", "\"E\""].iter().any(|word| line.contains(word))
            };
            let lines: Vec<String> =
                log.lines().filter(tells).map(|line| line.chars().take(300).collect()).collect();
            let shown = lines[lines.len().saturating_sub(40)..].join("\n");
            eprintln!("---- the log of the member on port {} ----\n{shown}\n----", self.port);
        }
    }
}

fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let random = std::iter::repeat_with(|| fastrand::u16(PORTS));
    random.take(100).find(is_free).expect("a free port")
}
