//! A MongoDB replica set of three members that a test may kill and freeze.

mod member;
mod single;

use std::time::Duration;

use mongodb::bson::{Document, doc};
use tempfile::TempDir;

use super::eventually;
pub(crate) use member::Member;
pub(crate) use single::{Alone, WithUsers};

/// How long a member does without a primary before it stands for election.
const ELECTION_TIMEOUT_MS: i32 = 2_000;
/// A member that stands still does not answer: nobody waits for it.
const ANSWER: Duration = Duration::from_secs(2);

/// Ends its members when it is dropped, whatever state they are in.
pub(crate) struct MongoSet {
    name: String,
    // Dropped in this order: the members before their directories.
    pub(crate) members: [Member; 3],
    _folder: TempDir,
}

impl MongoSet {
    /// Three new members, one of them primary, the others up to date.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("oncebox-set-").tempdir().expect("a temporary folder");
        let name = format!("set_{}", uuid::Uuid::now_v7().simple());
        let member = async |nth: usize| {
            Member::start_new(&folder.path().join(format!("member-{nth}")), &["--replSet", &name]).await
        };
        let members = [member(0).await, member(1).await, member(2).await];
        let set = Self { name, members, _folder: folder };
        set.initiate().await;
        set.is_whole().await;
        set
    }

    async fn initiate(&self) {
        let member = |(nth, member): (i32, &Member)| doc! { "_id": nth, "host": member.address() };
        let members: Vec<Document> = (0..).zip(&self.members).map(member).collect();
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
        let hosts: Vec<String> = self.members.iter().map(Member::address).collect();
        format!("mongodb://{}/{database}?replicaSet={}", hosts.join(","), self.name)
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
