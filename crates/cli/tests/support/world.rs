//! Everything one test has for itself.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::command::{Answer, oncebox};
use super::config::{Config, Inbox};
use super::daemon::Daemon;
use super::database::{Database, Kind};
use super::eventually;
use super::kafka_cluster::KafkaCluster;
use super::mongo_set::{Hasty, MongoSet, WithUsers};
use super::topic::Topic;

/// Copies by cause.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Causes {
    pub(crate) redelivered: i64,
    pub(crate) rewound: i64,
    pub(crate) published_twice: i64,
    pub(crate) unknown: i64,
}

/// A database, a topic, a consumer and a configuration that nobody else has. Goes when it is dropped.
pub(crate) struct World {
    pub(crate) db: Database,
    pub(crate) topic: Topic,
    pub(crate) consumer: String,
    pub(crate) config: Config,
    folder: TempDir,
    started: AtomicU32,
}

impl World {
    /// With one inbox that handles orders.
    pub(crate) async fn new(kind: Kind, partitions: i32) -> Self {
        Self::with_database(kind, partitions, "").await
    }

    /// With a database that is made with these options.
    pub(crate) async fn with_database(kind: Kind, partitions: i32, options: &str) -> Self {
        let (name, folder) = Self::place();
        // In a box: it has room for all that a new connection may need.
        let db = Box::pin(Database::create(kind, &name, folder.path(), options)).await;
        Self::around(db, name, folder, partitions).await
    }

    /// While no other test of its server runs: for tests that change the server itself.
    pub(crate) async fn alone(kind: Kind, partitions: i32) -> Self {
        let (name, folder) = Self::place();
        let db = Box::pin(Database::create_alone(kind, &name, folder.path())).await;
        Self::around(db, name, folder, partitions).await
    }

    /// With a topic in the cluster behind these brokers.
    pub(crate) async fn at_brokers(kind: Kind, brokers: &str, partitions: i32) -> Self {
        let (name, folder) = Self::place();
        let db = Box::pin(Database::create(kind, &name, folder.path(), "")).await;
        let topic = Topic::create_at(brokers, &name, partitions).await;
        Self::with_topic(db, name, folder, topic)
    }

    /// On a replica set of the test's own.
    pub(crate) async fn on_set(set: &MongoSet, partitions: i32) -> Self {
        Self::at(|name| set.url(name), partitions).await
    }

    /// On a server that ends transactions after a few seconds.
    pub(crate) async fn on_hasty(server: &Hasty, partitions: i32) -> Self {
        Self::at(|name| server.url(name), partitions).await
    }

    async fn at(url: impl Fn(&str) -> String, partitions: i32) -> Self {
        let (name, folder) = Self::place();
        let db = Box::pin(Database::on_set(url(&name), &name)).await;
        Self::around(db, name, folder, partitions).await
    }

    /// As a user who may do nothing outside of its database.
    pub(crate) async fn of_user(server: &WithUsers, partitions: i32) -> Self {
        let (name, folder) = Self::place();
        let db = Box::pin(Database::of_user(server, &name)).await;
        Self::around(db, name, folder, partitions).await
    }

    /// On a Kafka of the test's own, with a partition on each of the brokers of these numbers.
    pub(crate) async fn on_cluster(kind: Kind, cluster: &KafkaCluster, brokers: &[i32]) -> Self {
        let (name, folder) = Self::place();
        let db = Box::pin(Database::create(kind, &name, folder.path(), "")).await;
        let topic = Topic::create_on(cluster, &name, brokers).await;
        Self::with_topic(db, name, folder, topic)
    }

    fn place() -> (String, TempDir) {
        let folder = tempfile::Builder::new().prefix("oncebox-e2e-").tempdir().expect("a temporary folder");
        (format!("e2e_{}", uuid::Uuid::now_v7().simple()), folder)
    }

    async fn around(db: Database, name: String, folder: TempDir, partitions: i32) -> Self {
        let topic = Topic::create(&name, partitions).await;
        Self::with_topic(db, name, folder, topic)
    }

    fn with_topic(db: Database, name: String, folder: TempDir, topic: Topic) -> Self {
        let mut config = Config::new(&db.url, &topic.brokers);
        config.inboxes.push(Inbox::of_orders(db.kind, &name, &name));
        Self { db, topic, consumer: name, config, folder, started: AtomicU32::new(0) }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Changes the inbox.
    pub(crate) fn inbox(&mut self, change: impl FnOnce(Inbox) -> Inbox) {
        let inbox = self.config.inboxes.remove(0);
        self.config.inboxes.insert(0, change(inbox));
    }

    /// Starts a daemon with the configuration as it is now.
    pub(crate) fn start(&self) -> Daemon {
        self.start_with(&[], &[])
    }

    /// Starts a daemon that ends itself at a place in the loop.
    pub(crate) fn start_to_crash(&self, failpoint: &str) -> Daemon {
        self.start_with(&[], &[("ONCEBOX_FAILPOINT", failpoint)])
    }

    pub(crate) fn start_with(&self, arguments: &[&str], env: &[(&str, &str)]) -> Daemon {
        self.write_config();
        let nth = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        Daemon::start(self.folder(), &format!("daemon-{nth}"), arguments, env)
    }

    /// Runs another command with the configuration as it is now.
    pub(crate) fn oncebox(&self, arguments: &[&str]) -> Answer {
        self.write_config();
        Answer::of(self.folder(), arguments)
    }

    /// The same with this environment.
    pub(crate) fn oncebox_with(&self, arguments: &[&str], env: &[(&str, &str)]) -> Answer {
        self.write_config();
        let mut command = oncebox(self.folder());
        command.args(arguments).envs(env.iter().copied());
        Answer::of_command(command)
    }

    /// In one step: another daemon may be reading it.
    pub(crate) fn write_config(&self) {
        let (file, new) = (self.folder().join("oncebox.toml"), self.folder().join("oncebox.toml.new"));
        std::fs::write(&new, self.config.text()).expect("the configuration is written");
        std::fs::rename(new, file).expect("the configuration is put in place");
    }

    /// The position of each partition of a consumer.
    pub(crate) async fn positions_of(&self, consumer: &str) -> Vec<(i64, i64)> {
        if !self.db.is_migrated().await {
            return Vec::new();
        }
        self.db.positions(consumer).await
    }

    /// Waits until everything in the topic is settled: applied, skipped or given up.
    pub(crate) async fn caught_up(&self) {
        self.caught_up_of(&self.consumer).await;
    }

    pub(crate) async fn caught_up_of(&self, consumer: &str) {
        let ends = self.topic.ends();
        let wanted: Vec<(i64, i64)> = (0..).zip(ends).filter(|(_, end)| *end > 0).collect();
        eventually(&format!("{consumer} is at the end of the topic: {wanted:?}"), async || {
            let positions = self.positions_of(consumer).await;
            wanted
                .iter()
                .all(|(partition, end)| positions.iter().any(|(p, next)| p == partition && next >= end))
        })
        .await;
    }

    /// Waits until the ledger has at least this many rows.
    pub(crate) async fn effects_reach(&self, rows: i64) {
        eventually(&format!("{rows} effects"), async || self.effects().await >= rows).await;
    }

    pub(crate) async fn effects(&self) -> i64 {
        self.db.rows("ledger").await
    }

    /// How many copies the positions say were skipped.
    pub(crate) async fn duplicates(&self) -> i64 {
        self.db.duplicates(&self.consumer).await
    }

    /// The same by cause, as `oncebox status` shows them.
    pub(crate) fn causes(&self) -> Causes {
        let status = self.oncebox(&["status", "--output", "json"]).exits(0).json();
        let consumers = status["consumers"].as_array().expect("consumers");
        let own =
            consumers.iter().find(|one| one["consumer"] == self.consumer.as_str()).expect("the consumer");
        let count = |cause: &str| own["duplicates_by_cause"][cause].as_i64().expect("a number");
        Causes {
            redelivered: count("redelivered"),
            rewound: count("rewound"),
            published_twice: count("published_twice"),
            unknown: count("unknown"),
        }
    }

    /// Waits until the database knows that all partitions are caught up: before, no receipt may go.
    pub(crate) async fn known_to_be_caught_up(&self) {
        eventually("all partitions are caught up", async || self.db.behind().await == 0).await;
    }

    /// `oncebox position move` of everything that this world reads.
    pub(crate) fn move_to(&self, to: &str, more: &[&str]) -> Answer {
        let command =
            ["position", "move", "--consumer", &self.consumer, "--topic", &self.topic.name, "--to", to];
        self.oncebox(&[&command[..], more].concat())
    }

    /// Waits until `/healthz` answers with this, and returns what is unhealthy.
    pub(crate) async fn turns(&self, daemon: &Daemon, status: u16) -> Vec<serde_json::Value> {
        let mut last = None;
        eventually(&format!("/healthz is {status}"), async || {
            last = daemon.health().await;
            last.as_ref().is_some_and(|(now, _)| *now == status)
        })
        .await;
        let loops = last.and_then(|(_, health)| health["loops"].as_array().cloned()).unwrap_or_default();
        loops.into_iter().filter(|l| l["healthy"] == false).collect()
    }

    /// A dead letter, whole, by its place in the list.
    #[track_caller]
    pub(crate) fn letter(&self, nth: usize) -> serde_json::Value {
        let letters = self.oncebox(&["dead", "list", "--output", "json"]).exits(0).json();
        let number = letters[nth]["number"].to_string();
        self.oncebox(&["dead", "show", &number, "--output", "json"]).exits(0).json()
    }

    /// The texts of a column of the dead letters, in their order.
    pub(crate) async fn dead(&self, column: &str) -> Vec<String> {
        self.db.dead(column).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A runtime of its own: the test's own is in the middle of something.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    self.topic.delete().await;
                    self.db.drop().await;
                });
            });
        });
    }
}
