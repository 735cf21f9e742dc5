//! A MongoDB replica set of three members that a test may kill and freeze.

mod member;
mod single;

use std::time::Duration;

use mongodb::bson::{Document, doc};
use tempfile::TempDir;

use super::eventually;
use super::proxy::Proxy;
pub(crate) use member::Member;
pub(crate) use single::{Alone, Hasty, WithUsers};

/// How long a member does without a primary before it stands for election.
const ELECTION_TIMEOUT_MS: i32 = 2_000;
/// A member that stands still does not answer: nobody waits for it.
const ANSWER: Duration = Duration::from_secs(2);

/// Ends its members when it is dropped, whatever state they are in.
pub(crate) struct MongoSet {
    name: String,
    /// By what addresses the members, and their clients, know each other.
    addresses: Vec<String>,
    // Dropped in this order: the members before their directories.
    pub(crate) members: [Member; 3],
    _folder: TempDir,
}

impl MongoSet {
    /// Three new members, one of them primary, the others up to date.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[], async |member| member.address()).await
    }

    /// The same with a proxy before each member: whoever speaks to it comes through there.
    pub(crate) async fn start_behind_proxies() -> (Self, Vec<Proxy>) {
        let mut proxies = Vec::new();
        let set = Self::start_with(&[], async |member| {
            let proxy = Proxy::before(&format!("mongodb://{}/", member.address())).await;
            let address = proxy.address();
            proxies.push(proxy);
            address
        })
        .await;
        (set, proxies)
    }

    /// The same with members that can be told to stop copying: see [`MongoSet::copies`].
    pub(crate) async fn start_for_tests() -> Self {
        Self::start_with(&["--setParameter", "enableTestCommands=1"], async |member| member.address()).await
    }

    async fn start_with(options: &[&str], mut address: impl AsyncFnMut(&Member) -> String) -> Self {
        let folder = tempfile::Builder::new().prefix("oncebox-set-").tempdir().expect("a temporary folder");
        let name = format!("set_{}", uuid::Uuid::now_v7().simple());
        let member = async |nth: usize| {
            let options = [&["--replSet", &name], options].concat();
            Member::start_new(&folder.path().join(format!("member-{nth}")), &options).await
        };
        let members = [member(0).await, member(1).await, member(2).await];
        let mut addresses = Vec::new();
        for member in &members {
            addresses.push(address(member).await);
        }
        let set = Self { name, addresses, members, _folder: folder };
        set.initiate().await;
        set.is_whole().await;
        set
    }

    async fn initiate(&self) {
        let member = |(nth, address): (i32, &String)| doc! { "_id": nth, "host": address };
        let members: Vec<Document> = (0..).zip(&self.addresses).map(member).collect();
        let config = doc! {
            "_id": &self.name,
            "members": members,
            "settings": { "electionTimeoutMillis": ELECTION_TIMEOUT_MS, "heartbeatIntervalMillis": 500 },
        };
        let answer = self.members[0].run(doc! { "replSetInitiate": config }).await;
        answer.expect("the set is made");
    }

    /// As it stands in `store.url`.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("mongodb://{}/{database}?replicaSet={}", self.addresses.join(","), self.name)
    }

    /// Whether a member copies what the primary has written. One that does not stays in touch, and can be elected later without it.
    pub(crate) async fn copies(&self, nth: usize, copies: bool) {
        let mode = if copies { "off" } else { "alwaysOn" };
        let command = doc! { "configureFailPoint": "stopReplProducer", "mode": mode };
        self.members[nth].run(command).await.expect("it was started for tests");
    }

    /// The member that takes writes, once there is one. One that stood still may believe for a moment that it still does: the latest
    /// election counts.
    pub(crate) async fn primary(&self) -> usize {
        let mut found = None;
        eventually("the set has a primary", async || {
            let mut elected = Vec::new();
            for (nth, member) in self.members.iter().enumerate() {
                let Ok(hello) = member.hello().await else { continue };
                if hello.get_bool("isWritablePrimary").unwrap_or(false) {
                    elected.push((hello.get_object_id("electionId").expect("an election").bytes(), nth));
                }
            }
            found = elected.into_iter().max().map(|(_, nth)| nth);
            found.is_some()
        })
        .await;
        found.expect("it was found")
    }

    /// Waits until all members run and follow one primary: then the next one may go.
    pub(crate) async fn is_whole(&self) {
        eventually("the set is whole", async || {
            let primary = &self.members[self.primary().await];
            let Ok(status) = primary.run(doc! { "replSetGetStatus": 1 }).await else { return false };
            let members = status.get_array("members").expect("members");
            let state = |member: &mongodb::bson::Bson| {
                member.as_document().and_then(|member| member.get_i32("state").ok())
            };
            let mut states: Vec<Option<i32>> = members.iter().map(state).collect();
            states.sort_unstable();
            // One primary, two secondaries.
            states == [Some(1), Some(2), Some(2)]
        })
        .await;
    }
}
