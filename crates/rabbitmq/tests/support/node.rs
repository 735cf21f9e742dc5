//! A broker of a test's own, which can be stopped, killed, frozen and started again with the data that it has.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{eventually, service};

/// Below the ports that the system hands out by itself: while the node is down, nobody else gets its port.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

pub struct Node {
    name: &'static str,
    ports: [u16; 3],
    /// Of the first of a cluster.
    epmd: Option<Child>,
    server: Option<Child>,
    folder: TempDir,
}

impl Node {
    /// A new one, without data, with these lines in its configuration.
    pub async fn start(config: &str) -> Self {
        let epmd_port = free_port();
        let mut epmd = Command::new("epmd");
        epmd.args(["-address", "127.0.0.1", "-port", &epmd_port.to_string()]);
        let epmd = epmd.stdin(Stdio::null()).spawn().expect("epmd can be run");
        let mut node = Self::new("test", config, epmd_port, Some(epmd));
        node.start_again().await;
        node
    }

    /// One more of a cluster.
    pub async fn join(first: &Self, name: &'static str) -> Self {
        let mut node = Self::new(name, "", first.ports[2], None);
        let cookie = |node: &Self| node.folder.path().join(".erlang.cookie");
        fs::copy(cookie(first), cookie(&node)).unwrap();
        node.start_again().await;
        for step in [&["stop_app"][..], &["join_cluster", &first.full_name()], &["start_app"]] {
            node.ctl(step);
        }
        node
    }

    fn new(name: &'static str, config: &str, epmd_port: u16, epmd: Option<Child>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rabbitmq.conf"), config).unwrap();
        fs::write(folder.path().join("enabled_plugins"), "[].\n").unwrap();
        Self { name, ports: [free_port(), free_port(), epmd_port], epmd, server: None, folder }
    }

    fn full_name(&self) -> String {
        format!("{}@localhost", self.name)
    }

    /// Whether this one leads the quorum queue, as another node sees it.
    pub fn leads(&self, queue: &str, seen_by: &Self) -> bool {
        let queues = seen_by.ctl(&["list_queues", "--quiet", "--no-table-headers", "name", "leader"]);
        queues.lines().any(|line| line.split('\t').eq([queue, &self.full_name()]))
    }

    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.ports[0])
    }

    /// Starts it with the data that it has.
    pub async fn start_again(&mut self) {
        assert!(self.server.is_none(), "it runs already");
        let log = File::create(self.log()).unwrap();
        let mut server = self.command(service("ONCEBOX_TEST_RABBITMQ_SERVER"));
        server.stdout(log.try_clone().unwrap()).stderr(log);
        self.server = Some(server.spawn().expect("rabbitmq-server can be run"));
        let (port, log) = (self.ports[0], self.log());
        let server = self.server.as_mut().unwrap();
        eventually("the node answers", async || {
            assert!(server.try_wait().unwrap().is_none(), "the node ended");
            fs::read_to_string(&log).is_ok_and(|log| log.contains("Server startup complete"))
                && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        })
        .await;
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let folder = self.folder.path();
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).current_dir(folder).env("HOME", folder);
        command.env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
        command.env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"));
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("enabled_plugins"));
        command.env("RABBITMQ_MNESIA_BASE", folder.join("data")).env("RABBITMQ_LOG_BASE", folder.join("log"));
        command.env("RABBITMQ_PID_FILE", folder.join("pid")).env("RABBITMQ_LOGS", "-");
        command.env("RABBITMQ_NODENAME", self.full_name()).env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODE_PORT", self.ports[0].to_string());
        command.env("RABBITMQ_DIST_PORT", self.ports[1].to_string());
        command.env("ERL_EPMD_ADDRESS", "127.0.0.1").env("ERL_EPMD_PORT", self.ports[2].to_string());
        let erlang = "-noinput -kernel inet_dist_use_interface {127,0,0,1}";
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", erlang).env("RUNNING_UNDER_SYSTEMD", "true");
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("node.log")
    }

    /// Runs a command of `rabbitmqctl`.
    pub fn ctl(&self, args: &[&str]) -> String {
        let program = Path::new(&service("ONCEBOX_TEST_RABBITMQ_SERVER")).with_file_name("rabbitmqctl");
        let output = self.command(program).args(args).output().expect("rabbitmqctl can be run");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// How many connections it has.
    pub fn connections(&self) -> usize {
        self.ctl(&["list_connections", "--quiet", "--no-table-headers", "pid"]).lines().count()
    }

    /// SIGTERM: it writes down what it has and says goodbye to everybody.
    pub fn stop(&mut self) {
        self.end_with(Signal::SIGTERM);
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.end_with(Signal::SIGKILL);
    }

    fn end_with(&mut self, signal: Signal) {
        self.signal(signal);
        self.server.take().expect("it runs").wait().expect("it ends");
    }

    /// SIGSTOP: it stands still, and its connections stay open.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.server.as_ref().expect("it runs").id();
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            // Also one that stands still.
            server.kill().and_then(|()| server.wait()).ok();
        }
        if let Some(epmd) = &mut self.epmd {
            epmd.kill().and_then(|()| epmd.wait()).ok();
        }
        // Its helper process writes into the folder until it has noticed.
        std::thread::sleep(Duration::from_millis(100));
        if std::thread::panicking() {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("---- the node's log ----\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
    }
}

pub fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let random = std::iter::repeat_with(|| fastrand::u16(PORTS));
    random.take(100).find(is_free).expect("a free port")
}
