//! Whether the replica set is fit for the job.

mod collections;
mod members;
mod outbox;
mod receipts;
mod rights;
mod settings;
mod transactions;

use std::cmp::Ordering;
use std::time::Duration;

use mongodb::bson::Document;
use oncebox_core::store::{Check, ErrorClass, Finding, StoreError, StoreResult};

use crate::classify::Said;
use crate::migrate::{NEWEST_VERSION, schema_version};
use crate::store::{MongoStore, hello};
use crate::time::now_ms;

pub(crate) use rights::missing_rights;

/// How far the server's clock may be off before retention and `:timestamp` become surprising.
const CLOCK_TOLERANCE_MS: i64 = 5_000;

impl Check for MongoStore {
    async fn ping(&self) -> StoreResult<()> {
        let doing = "asking the server";
        self.patiently(doing, async {
            // The driver has looked for the primary already; this asks it whether it still is one.
            match hello(self).await?.get_bool("isWritablePrimary") {
                Ok(true) => Ok(()),
                _ => Err(StoreError::new(ErrorClass::Away, doing, "the replica set has no primary now")),
            }
        })
        .await
    }

    async fn check(&self, _largest_batch: usize) -> StoreResult<Vec<Finding>> {
        let look = async {
            let asked_at = now_ms();
            let hello = hello(self).await?;
            let answered_at = now_ms();
            let mut findings = vec![role(&hello)];
            findings.extend(members::findings(self, &hello).await);
            findings.extend(settings::findings(self).await);
            findings.extend(rights::findings(self).await);
            findings.extend(clock(&hello, asked_at, answered_at));
            let version = schema_version(self).await?;
            findings.push(schema(version));
            if version >= NEWEST_VERSION {
                findings.extend(collections::findings(self).await?);
            }
            findings.extend(receipts::findings(self).await?);
            findings.extend(outbox::findings(self).await?);
            Ok(findings)
        };
        self.patiently("checking", Box::pin(look)).await
    }

    async fn old_transactions(&self, older_than: Duration) -> StoreResult<Vec<(String, Duration)>> {
        self.patiently("looking for old transactions", transactions::old_transactions(self, older_than)).await
    }
}

/// Asks the server for something that the user may have no right to see: then nothing is known, and the rest is told.
async fn asked(store: &MongoStore, command: Document) -> Result<Document, String> {
    let admin = store.inner.aside.client().database("admin");
    admin.run_command(command).await.map_err(|error| Said(error).to_string())
}

fn role(hello: &Document) -> Finding {
    let subject = "server role";
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Finding::warning(
            subject,
            "mongos: oncebox was not tried with a sharded cluster. Keep oncebox's collections unsharded, run the tests of your \
             handlers on it, and kill processes and connections while they run",
        );
    }
    match (hello.get_str("setName"), hello.get_bool("isWritablePrimary")) {
        (Err(_), _) => Finding::error(
            subject,
            "the server stands alone, and has no transactions. Make it a replica set, one member is enough: start mongod with \
             --replSet rs0, run rs.initiate() once in its shell, and write ?replicaSet=rs0 into store.url",
        ),
        (Ok(set), Ok(true)) => Finding::ok(subject, format!("primary of {set}, takes writes")),
        (Ok(set), _) => Finding::error(
            subject,
            format!(
                "not the primary of {set}: write ?replicaSet={set} into store.url, without directConnection"
            ),
        ),
    }
}

fn clock(hello: &Document, asked_at: i64, answered_at: i64) -> Option<Finding> {
    let server = hello.get_datetime("localTime").ok()?.timestamp_millis();
    let off = if server < asked_at { server - asked_at } else { (server - answered_at).max(0) };
    Some(if off.abs() > CLOCK_TOLERANCE_MS {
        let seconds = off.abs() / 1000;
        let direction = if off < 0 { "behind" } else { "ahead of" };
        Finding::warning(
            "clock",
            format!(
                "the primary is {seconds} s {direction} this machine; retention goes by the one that is behind, leases and holds \
                 by the primary. Let both take their time from the same servers (NTP)"
            ),
        )
    } else {
        Finding::ok("clock", "agrees with this machine")
    })
}

fn schema(version: u32) -> Finding {
    let subject = "schema";
    match version.cmp(&NEWEST_VERSION) {
        Ordering::Equal => Finding::ok(subject, format!("version {version}")),
        Ordering::Greater => Finding::error(
            subject,
            format!(
                "version {version} is newer than this oncebox, which knows {NEWEST_VERSION}: use the newer one"
            ),
        ),
        Ordering::Less if version == 0 => {
            Finding::error(subject, "no collections yet: run `oncebox migrate`")
        }
        Ordering::Less => Finding::error(
            subject,
            format!("version {version}, {NEWEST_VERSION} is needed: run `oncebox migrate`"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, doc};
    use oncebox_core::store::FindingLevel::{Error, Ok, Warning};

    use super::*;

    #[test]
    fn servers_are_told_apart() {
        let primary = doc! { "setName": "rs0", "isWritablePrimary": true };
        let cases = [
            (primary, Ok, "primary of rs0"),
            (doc! { "setName": "rs0", "isWritablePrimary": false }, Error, "without directConnection"),
            (doc! { "isWritablePrimary": true }, Error, "--replSet"),
            (doc! { "msg": "isdbgrid", "isWritablePrimary": true }, Warning, "sharded"),
        ];
        for (hello, level, says) in cases {
            let finding = role(&hello);
            assert_eq!(finding.level, level, "{hello}");
            assert!(finding.detail.contains(says), "{}", finding.detail);
        }
    }

    #[test]
    fn a_clock_that_is_off_is_told() {
        let level = |server: i64| {
            clock(&doc! { "localTime": DateTime::from_millis(server) }, 100_000, 101_000).map(|f| f.level)
        };
        assert_eq!(level(100_500), Some(Ok));
        assert_eq!(level(94_999), Some(Warning));
        assert_eq!(level(106_001), Some(Warning));
        assert_eq!(level(105_999), Some(Ok));
        assert_eq!(clock(&doc! {}, 0, 0), None);
    }

    #[test]
    fn versions_of_the_schema_are_told_apart() {
        assert_eq!(schema(0).level, Error);
        assert_eq!(schema(NEWEST_VERSION).level, Ok);
        assert_eq!(schema(NEWEST_VERSION + 1).level, Error);
    }
}
