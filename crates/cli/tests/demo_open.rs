//! `oncebox demo --open` as a new user meets it: some messages have a mistake, and one of them is put right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/command.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod command;

#[path = "support/served.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod served;

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use command::{oncebox, read, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use served::Server;
use tempfile::TempDir;

/// A demo in a folder of its own. It takes its processes with it.
struct Demo {
    folder: TempDir,
    server: Server,
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.interrupt();
        wait(&mut self.server.child, Duration::from_secs(60));
    }
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = oncebox(folder.path());
        command.args(["demo", "--open", "--output", "json"]).args(arguments).env("TMPDIR", folder.path());
        let child = command
            .stdout(File::create(folder.path().join("stdout")).unwrap())
            .stderr(File::create(folder.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut demo = Self { folder, server: Server { child, address: String::new() } };
        demo.server.address = demo.eventually(|said| {
            let url = said.split("the dashboard is at http://").nth(1)?.lines().next()?;
            Some(url.trim_end_matches('/').to_owned())
        });
        demo
    }

    fn eventually<T>(&self, found: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let said = self.said();
            match found(&said) {
                Some(found) => return found,
                None => assert!(Instant::now() < deadline, "{said}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn said(&self) -> String {
        read(&self.folder.path().join("stderr"))
    }

    /// Where the configuration and the database are.
    fn inside(&self) -> Option<PathBuf> {
        let mut entries = fs::read_dir(self.folder.path()).unwrap().flatten().map(|entry| entry.path());
        entries.find(|path| path.is_dir())
    }

    fn interrupt(&self) {
        kill(Pid::from_raw(i32::try_from(self.server.child.id()).unwrap()), Signal::SIGINT).ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_a_mistake_is_seen_put_right_and_replayed() {
    let mut demo = Demo::start(&["--messages", "2000", "--kills", "1"]);
    let stays = demo.eventually(|said| said.contains("until Ctrl-C").then(|| said.to_owned()));
    assert!(stays.contains("5 messages name an article that does not exist"), "{stays}");
    assert!(stays.contains(&format!("http://{}/dead", demo.server.address)), "{stays}");
    let verdict: Value = serde_json::from_str(&read(&demo.folder.path().join("stdout"))).unwrap();
    let expected = json!({ "verdict": "ok", "unique": 2005, "effects": 2000, "parked": 5, "lost": 0, "doubled": 0, "out_of_order": 0 });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(verdict[name], *value, "{name} of {verdict:#}");
    }

    let groups = demo.server.json("/api/v1/dead-groups");
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1, "{groups:#}");
    let group = &groups["groups"][0];
    assert_eq!((group["letters"].as_i64(), group["keys"].as_i64()), (Some(5), Some(5)), "{groups:#}");
    assert!(group["error"].as_str().unwrap().contains("touched 0 rows, expected 1"), "{groups:#}");
    let number = demo.server.json("/api/v1/dead-letters")["letters"][0]["number"].as_i64().unwrap();
    let replay = json!({ "numbers": [number] }).to_string();
    assert_eq!(demo.server.act("replay-dead", &replay)["state"], "incomplete", "it is still wrong");
    // As the terminal says: another article in the payload.
    let payload = r#"{"sku":"sku-7","qty":1,"seq":-1}"#;
    let edit = json!({ "number": number, "seen": 0, "payload": payload }).to_string();
    assert_eq!(demo.server.act("edit-dead", &edit)["state"], "done");
    assert_eq!(demo.server.act("replay-dead", &replay)["said"], "Replayed 1 dead letter");
    assert_eq!(demo.server.json("/api/v1/overview")["consumers"][0]["dead_letters"], 4);

    demo.interrupt();
    let ended = wait(&mut demo.server.child, Duration::from_secs(60)).expect("it ends");
    assert!(ended.success(), "{ended}:\n{}", demo.said());
    assert_eq!(demo.inside(), None, "it leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_requests_hears_of_mistakes_himself_so_there_are_none() {
    let demo = Demo::start(&["--messages", "500", "--kills", "0", "--source", "http"]);
    let stays = demo.eventually(|said| said.contains("until Ctrl-C").then(|| said.to_owned()));
    assert!(!stays.contains("does not exist"), "{stays}");
    let verdict: Value = serde_json::from_str(&read(&demo.folder.path().join("stdout"))).unwrap();
    assert_eq!((&verdict["verdict"], &verdict["parked"]), (&json!("ok"), &json!(0)), "{verdict:#}");
}
