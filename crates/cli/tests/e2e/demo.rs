//! `oncebox demo` on a database and a Kafka of the user's own: it tells nobody the password, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::support::command::{oncebox, read, wait};
use crate::support::database::{Kind, PASSWORD};
use crate::support::eventually;
use crate::support::on_each_server;
use crate::support::world::World;

on_each_server!(
    mysql:
    an_interrupted_demo_leaves_nothing_behind_and_no_file_of_it_has_the_password,
    a_demo_that_ends_well_leaves_nothing_behind,
);

/// A demo in the middle of its work. Goes with its folder when it is dropped.
struct Demo {
    child: Child,
    /// Where it may put temporary files.
    temporary: TempDir,
    stderr: PathBuf,
}

impl Demo {
    async fn start(world: &World, messages: u32) -> Self {
        let store = world.db.url_with_password().await;
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let stderr = world.folder().join("demo.stderr");
        let child = oncebox(world.folder())
            .args(["demo", "--kills", "1", "--messages", &messages.to_string()])
            .args(["--store", &store, "--brokers", &world.topic.brokers])
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&stderr).expect("a file for stderr"))
            .spawn()
            .expect("oncebox starts");
        Self { child, temporary, stderr }
    }

    fn folder(&self) -> Option<PathBuf> {
        let mut entries = fs::read_dir(self.temporary.path()).expect("the folder").flatten();
        entries.next().map(|entry| entry.path())
    }

    /// The topic, as the configuration of a consumer names it.
    fn topic(&self) -> Option<String> {
        let config = fs::read_to_string(self.folder()?.join("consumer-0.toml")).ok()?;
        let line = config.lines().find_map(|line| line.strip_prefix("topics = [\""))?;
        Some(line.split('"').next()?.to_owned())
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    fn ends(&mut self, code: i32) {
        let status = wait(&mut self.child, Duration::from_secs(120)).expect("the demo ends");
        assert_eq!(status.code(), Some(code), "{status}:\n{}", read(&self.stderr));
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It takes its consumers with it.
        kill(self.pid(), Signal::SIGTERM).ok();
        if wait(&mut self.child, Duration::from_secs(30)).is_none() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// Everything that the files below a folder hold.
fn contents(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.extend(fs::read(&path).unwrap_or_default());
        }
    }
    all
}

/// The processes that were started with something of this folder.
fn processes_of(folder: &Path) -> usize {
    let folder = folder.to_str().expect("UTF-8").as_bytes();
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let mentions =
        |path: PathBuf| fs::read(path).is_ok_and(|line| line.windows(folder.len()).any(|w| w == folder));
    processes.filter(|process| mentions(process.path().join("cmdline"))).count()
}

async fn nothing_is_left(world: &World, demo: &Demo, topic: &str) {
    assert_eq!(demo.folder(), None, "the folder is gone");
    assert_eq!(processes_of(demo.temporary.path()), 0, "no consumer runs on");
    for table in ["oncebox_demo_stock", "oncebox_demo_ledger"] {
        assert!(!world.db.has_table(table).await, "{table} is still there");
    }
    for table in ["oncebox_inbox", "oncebox_position", "oncebox_dead"] {
        assert_eq!(world.db.rows_of(table, "oncebox-demo").await, 0, "{table}");
    }
    eventually("the topic is gone", async || !world.topic.exists(topic)).await;
}

async fn an_interrupted_demo_leaves_nothing_behind_and_no_file_of_it_has_the_password(kind: Kind) {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let world = World::new(kind, 1).await;
        let mut demo = Demo::start(&world, 1_000_000).await;
        eventually("the demo is at work", async || {
            world.db.has_table("oncebox_demo_ledger").await
                && world.db.rows("oncebox_demo_ledger").await > 100
        })
        .await;
        let folder = demo.folder().expect("it has a folder");
        let mode = fs::metadata(&folder).expect("the folder").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "nobody else may look in");
        let topic = demo.topic().expect("it has a topic");
        assert!(world.topic.exists(&topic));
        let files = contents(&folder);
        assert!(files.windows(8).any(|w| w == b"[[inbox]"), "the configuration is among them");
        let leaked = files.windows(PASSWORD.len()).any(|w| w == PASSWORD.as_bytes());
        assert!(!leaked, "the password is in a file");
        assert!(processes_of(&folder) >= 2);

        kill(demo.pid(), signal).expect("it runs");
        demo.ends(1);
        let said = read(&demo.stderr);
        assert!(said.contains("interrupted") && !said.contains(PASSWORD), "{said}");
        nothing_is_left(&world, &demo, &topic).await;
    }
}

async fn a_demo_that_ends_well_leaves_nothing_behind(kind: Kind) {
    let world = World::new(kind, 1).await;
    let mut demo = Demo::start(&world, 300).await;
    let mut topic = None;
    eventually("the demo has a topic", async || {
        topic = topic.take().or_else(|| demo.topic());
        topic.is_some()
    })
    .await;
    demo.ends(0);
    nothing_is_left(&world, &demo, &topic.expect("a topic")).await;
}
