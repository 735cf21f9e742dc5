//! A server of ours on a SQLite file, and how it is asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Executor, Row};
use tempfile::TempDir;

use super::command::{Answer, oncebox};

/// An inbox that stores requests and applies them later, with a handler that fails for what is not in stock.
pub(crate) const CONFIG: &str = r#"[store]
url = "sqlite://test.sqlite"
[http]
listen = "127.0.0.1:0"
[[inbox]]
consumer = "orders"
id = "header:Idempotency-Key"
retry = { attempts = 1 }
http = { path = "/in/orders", mode = "accept" }
[inbox.handler]
each = [{ sql = "UPDATE stock SET sold = sold + 1 WHERE sku = :payload->>'sku'", rows = 1 }]
[outbox]
relay = true
"#;

/// A process that serves; it ends with this.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A folder with this configuration, and a migrated file with a stock.
pub(crate) async fn world(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("oncebox.toml"), config).unwrap();
    Answer::of(folder.path(), ["migrate"]).exits(0);
    open(folder.path()).await.execute("CREATE TABLE stock (sku TEXT PRIMARY KEY, sold INT)").await.unwrap();
    folder
}

async fn open(folder: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(folder.join("test.sqlite"));
    options.busy_timeout(Duration::from_secs(30)).connect().await.unwrap()
}

/// Starts a command that says where it listens: on stdout, or in its log.
pub(crate) fn serve(folder: &TempDir, arguments: &[&str]) -> Server {
    let mut command = oncebox(folder.path());
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_daemon = arguments[0] == "run";
    let said: Box<dyn Read + Send> = if is_daemon {
        Box::new(child.stderr.take().unwrap())
    } else {
        Box::new(child.stdout.take().unwrap())
    };
    let mut lines = BufReader::new(said).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        let at = line.find("127.0.0.1:")?;
        let end = line[at + 10..].find(|c: char| !c.is_ascii_digit()).map_or(line.len(), |end| at + 10 + end);
        Some(line[at..end].to_owned())
    });
    // Somebody has to read on, or the process waits.
    std::thread::spawn(move || lines.for_each(drop));
    Server { address: address.expect("an address"), child }
}

impl Server {
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let host = &self.address;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let reply = self.get(path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        serde_json::from_str(&reply.body).unwrap()
    }

    pub(crate) fn act(&self, name: &str, body: &str) -> Value {
        let reply = self.send("POST", &format!("/api/v1/actions/{name}"), &[], body);
        assert_eq!(reply.status, 200, "{name}: {}", reply.body);
        serde_json::from_str(&reply.body).unwrap()
    }

    pub(crate) fn deliver(&self, id: &str, sku: &str) -> u16 {
        let body = format!("{{\"sku\":\"{sku}\"}}");
        self.send("POST", "/in/orders", &[("Idempotency-Key", id)], &body).status
    }

    pub(crate) fn eventually(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds(self) {
            assert!(Instant::now() < deadline, "never: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(crate) async fn sold(folder: &TempDir, sku: &str) -> i64 {
    let row = sqlx::query("SELECT sold FROM stock WHERE sku = ?").bind(sku);
    row.fetch_one(&mut open(folder.path()).await).await.unwrap().get(0)
}

pub(crate) async fn execute(folder: &TempDir, sql: &'static str) {
    open(folder.path()).await.execute(sql).await.unwrap();
}
