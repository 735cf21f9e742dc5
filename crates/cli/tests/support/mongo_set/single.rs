//! Servers of one member: one that is no set, one that is in a hurry, and one that wants to know who is there.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use tempfile::TempDir;

use super::Member;
use crate::support::eventually;

const SET: &str = "secured";
const HASTY: &str = "hasty";
const ROOT: &str = "root:of-the-test";

/// A server without a replica set.
pub(crate) struct Alone {
    member: Member,
    _folder: TempDir,
}

impl Alone {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(options: &[&str]) -> Self {
        let folder = folder();
        Self { member: Member::start_new(&folder.path().join("alone"), options).await, _folder: folder }
    }

    /// As it stands in `store.url`.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("mongodb://{}/{database}", self.member.address())
    }
}

/// A set of one member that ends transactions after a few seconds.
pub(crate) struct Hasty {
    member: Member,
    _folder: TempDir,
}

impl Hasty {
    pub(crate) async fn start() -> Self {
        let folder = folder();
        let hasty = "transactionLifetimeLimitSeconds=3";
        let options = ["--replSet", HASTY, "--setParameter", hasty];
        let member = Member::start_new(&folder.path().join("member"), &options).await;
        make_set(&member, HASTY).await;
        Self { member, _folder: folder }
    }

    /// As it stands in `store.url`.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("mongodb://{}/{database}?replicaSet={HASTY}", self.member.address())
    }
}

/// Makes a set of one member, and waits until it takes writes.
async fn make_set(member: &Member, name: &str) {
    let config = doc! { "_id": name, "members": [{ "_id": 0, "host": member.address() }] };
    member.run(doc! { "replSetInitiate": config }).await.expect("the set is made");
    eventually("the member elects itself", async || {
        member.hello().await.is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false))
    })
    .await;
}

/// A set of one member on which nobody may do anything without a password.
pub(crate) struct WithUsers {
    member: Member,
    _folder: TempDir,
}

impl WithUsers {
    pub(crate) async fn start() -> Self {
        let folder = folder();
        let key = folder.path().join("key");
        fs::write(&key, "0123456789abcdef".repeat(4)).expect("a key file");
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("a key file of our own");
        let key = key.to_str().expect("UTF-8");
        // No transaction ends because it is old: whoever waits for that waits too long.
        let patient = "transactionLifetimeLimitSeconds=3600";
        let options = ["--replSet", SET, "--keyFile", key, "--setParameter", patient];
        let member = Member::start_new(&folder.path().join("member"), &options).await;
        make_set(&member, SET).await;
        // The first user is made by whoever is on the same machine.
        let (root, password) = ROOT.split_once(':').expect("a password");
        let user = doc! { "createUser": root, "pwd": password, "roles": ["root"] };
        member.run(user).await.expect("the first user");
        Self { member, _folder: folder }
    }

    /// For the test itself, which may do everything.
    pub(crate) fn url_of_root(&self, database: &str) -> String {
        format!("{}&authSource=admin", self.url_of(ROOT, database))
    }

    /// Makes a user who may work with this database, and do nothing else; the URL of it.
    pub(crate) async fn user(&self, database: &str, name: &str, password: &str) -> String {
        self.run(database, doc! { "createUser": name, "pwd": password, "roles": ["readWrite"] }).await;
        self.url_of(&format!("{name}:{password}"), database)
    }

    /// Takes a user the right to read and write, or gives it back.
    pub(crate) async fn change(&self, command: &str, database: &str, user: &str) {
        self.run(database, doc! { command: user, "roles": ["readWrite"] }).await;
    }

    async fn run(&self, database: &str, command: Document) {
        let client = Client::with_uri_str(self.url_of_root(database)).await.expect("a client");
        client.database(database).run_command(command).await.expect("root may do it");
    }

    fn url_of(&self, who: &str, database: &str) -> String {
        format!("mongodb://{who}@{}/{database}?replicaSet={SET}", self.member.address())
    }
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("oncebox-set-").tempdir().expect("a temporary folder")
}
