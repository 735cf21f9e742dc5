//! `oncebox demo --source rabbitmq` on a real broker: the verdict, and what it leaves behind.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::command::{oncebox, read, wait};
use crate::support::eventually;
use crate::support::queue::{has_queue, url};

/// A demo on a SQLite file of its own.
struct Demo {
    child: Child,
    folder: TempDir,
}

impl Demo {
    fn start(messages: u32, kills: u32) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = |name: &str| fs::File::create(folder.path().join(name)).expect("a file");
        let child = oncebox(folder.path())
            .args(["demo", "--source", "rabbitmq", "--rabbitmq", &url(), "--output", "json"])
            .args(["--messages", &messages.to_string(), "--kills", &kills.to_string()])
            .env("TMPDIR", folder.path())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .stdin(Stdio::null())
            .spawn()
            .expect("oncebox starts");
        Self { child, folder }
    }

    fn said(&self) -> String {
        read(&self.folder.path().join("stderr"))
    }

    /// The queue that it says it has made.
    fn queue(&self) -> Option<String> {
        let said = self.said();
        let name = said.split_once("queue ")?.1.split_whitespace().next()?;
        Some(name.to_owned())
    }

    /// The configuration of a consumer.
    fn config(&self) -> Option<String> {
        let folders =
            fs::read_dir(self.folder.path()).expect("the folder").flatten().map(|found| found.path());
        let config = |folder: &Path| fs::read_to_string(folder.join("consumer-0.toml")).ok();
        folders.filter(|found| found.is_dir()).find_map(|folder| config(&folder))
    }

    fn ends(&mut self, code: i32) {
        let status = wait(&mut self.child, Duration::from_secs(120)).expect("the demo ends");
        assert_eq!(status.code(), Some(code), "{status}:\n{}", self.said());
    }

    fn interrupt(&self) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGINT).ok();
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It takes its consumers and its queue with it.
        self.interrupt();
        if wait(&mut self.child, Duration::from_secs(30)).is_none() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_through_rabbitmq_has_the_same_verdict_and_leaves_no_queue() {
    let mut demo = Demo::start(3_000, 3);
    let mut config = None;
    eventually("a consumer has its configuration", async || {
        config = demo.config();
        config.is_some()
    })
    .await;
    let config = config.unwrap_or_default();
    let queue = demo.queue().expect("it has a queue");
    assert!(config.contains(&queue) && !config.contains("guest"), "the queue and no password: {config}");
    assert!(has_queue(&queue).await);
    demo.ends(0);
    let verdict: Value = serde_json::from_str(&read(&demo.folder.path().join("stdout"))).expect("a verdict");
    assert_eq!(verdict["verdict"], "ok", "{verdict:#}");
    for (name, value) in [
        ("produced", 3_600),
        ("unique", 3_000),
        ("effects", 3_000),
        ("kills", 3),
        ("lost", 0),
        ("doubled", 0),
        ("out_of_order", 0),
        ("stock_off_by", 0),
    ] {
        assert_eq!(verdict[name], value, "{name} of {verdict:#}");
    }
    assert!(verdict["delivered"].as_i64() >= Some(3_600), "everything was read: {verdict:#}");
    assert_eq!(verdict["delivered_is_exact"], false, "who is killed takes its counts along");
    assert!(!has_queue(&queue).await, "the queue is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_demo_leaves_no_queue() {
    let mut demo = Demo::start(1_000_000, 0);
    eventually("the demo has a queue", async || match demo.queue() {
        Some(queue) => has_queue(&queue).await,
        None => false,
    })
    .await;
    let queue = demo.queue().expect("a queue");
    demo.interrupt();
    demo.ends(1);
    assert!(!has_queue(&queue).await, "{}", demo.said());
}
