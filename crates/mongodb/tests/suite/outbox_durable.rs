//! What the relay reads is of the majority: an event that a failover can still take back is not published.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, WriteConcern};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncebox_core::store::{ErrorClass, Outbox};
use oncebox_mongodb::{MongoStore, TemporaryMongo};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::by_hand::{HOUR, HandRelay, MANY, emit, outbox, plain, text};

/// Nobody is elected or steps down while a test runs.
const ELECTION_TIMEOUT_MS: i32 = 120_000;
const SET: &str = "pair";

/// A set of two members, so that without the second there is no majority.
struct Pair {
    // Dropped in this order: the members before their folders.
    first: Member,
    second: Member,
    _folder: TempDir,
}

impl Pair {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (Member::start(folder.path()), Member::start(folder.path()));
        let config = doc! {
            "_id": SET,
            "members": [
                { "_id": 0, "host": first.address() },
                { "_id": 1, "host": second.address(), "priority": 0 },
            ],
            "settings": { "electionTimeoutMillis": ELECTION_TIMEOUT_MS },
        };
        let pair = Self { first, second, _folder: folder };
        pair.until("the set is made", doc! { "replSetInitiate": config }).await;
        pair.until("the first is primary", doc! { "replSetStepUp": 1 }).await;
        pair
    }

    /// Sends a command to the first member until it takes it.
    async fn until(&self, what: &str, command: Document) {
        let url = format!("mongodb://{}/?directConnection=true", self.first.address());
        let admin = Client::with_uri_str(url).await.unwrap().database("admin");
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = admin.run_command(command.clone()).await {
            assert!(Instant::now() < deadline, "{what}: {error}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn url(&self) -> String {
        format!("mongodb://{},{}/?replicaSet={SET}", self.first.address(), self.second.address())
    }
}

struct Member {
    port: u16,
    child: Child,
}

impl Member {
    fn start(folder: &Path) -> Self {
        let program = std::env::var("ONCEBOX_TEST_MONGOD")
            .unwrap_or_else(|_| panic!("ONCEBOX_TEST_MONGOD must hold the path of a mongod"));
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let folder = folder.join(port.to_string());
        fs::create_dir(&folder).unwrap();
        let log = File::create(folder.with_extension("log")).unwrap();
        let mut command = Command::new(program);
        command.args(["--replSet", SET, "--bind_ip", "127.0.0.1", "--nounixsocket"]);
        command.args(["--port", &port.to_string(), "--wiredTigerCacheSizeGB", "0.25", "--dbpath"]);
        command.arg(&folder).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self { port, child: command.spawn().unwrap() }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// It stands still until what is returned is dropped, also by a test that fails: others wait for it then.
    fn freeze(&self) -> Frozen<'_> {
        self.signal(Signal::SIGSTOP);
        Frozen(self)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }
}

struct Frozen<'m>(&'m Member);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::SIGCONT);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Also one that stands still.
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            eprintln!("the mongod on port {} was left behind: {error}", self.port);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_the_majority_does_not_have_is_not_read() {
    let pair = Pair::start().await;
    let temporary = TemporaryMongo::new(&pair.url()).await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let seqs = emit(&store, "t", &[("a", "held")]).await;
    relay.hold(seqs[0], HOUR).await;
    assert!(relay.next("t").await.is_empty());

    let frozen = pair.second.freeze();
    // Its writer has no answer from the majority: for all that anybody knows the event is never going to be there.
    let alone = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
    let new = plain(seqs[0] + 1, "t", Some("b"), "new");
    outbox(&store).insert_one(new).write_concern(alone).await.unwrap();
    let brief = MongoStore::builder(temporary.url()).silence_timeout(Duration::from_secs(2));
    let read = brief.connect().await.unwrap().next_events("t", &relay.shards(), MANY).await;
    let found = read.map(|events| events.iter().map(text).collect::<Vec<_>>());
    match found {
        Ok(found) => assert!(found.is_empty(), "read what is not durable: {found:?}"),
        Err(error) => assert_eq!(error.class, ErrorClass::Away, "{error}"),
    }

    drop(frozen);
    assert_eq!(relay.texts("t").await, ["new"]);
}
