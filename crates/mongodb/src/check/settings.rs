//! What the server is like.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use oncebox_core::store::Finding;

use super::asked;
use crate::position::whole;
use crate::store::MongoStore;

/// The oldest server that has what the operations need.
const OLDEST: [u32; 2] = [6, 0];
/// A batch with a slow handler needs some time.
const LEAST_LIFETIME: Duration = Duration::from_secs(30);
/// A process that is killed leaves its transaction to the server, and its messages wait for the end of it.
const MOST_LIFETIME: Duration = Duration::from_secs(300);

pub(super) async fn findings(store: &MongoStore) -> Vec<Finding> {
    let mut findings = vec![
        asked(store, doc! { "buildInfo": 1 })
            .await
            .map_or_else(|why| unknown("version", &why), |info| version(&info)),
    ];
    let features = asked(store, doc! { "getParameter": 1, "featureCompatibilityVersion": 1 }).await;
    findings.push(features.map_or_else(|why| unknown(FEATURES, &why), |found| compatibility(&found)));
    let lifetime = asked(store, doc! { "getParameter": 1, LIFETIME: 1 }).await;
    findings.push(lifetime.map_or_else(
        |why| unknown(LIFETIME, &why),
        |found| self::lifetime(whole(found.get(LIFETIME)), store.inner.limits.lock),
    ));
    let concerns = asked(store, doc! { "getDefaultRWConcern": 1 }).await;
    findings.push(concerns.map_or_else(|why| unknown(CONCERN, &why), |found| write_concern(&found)));
    let engine = asked(store, quiet_status()).await;
    findings.push(engine.map_or_else(|why| unknown(ENGINE, &why), |found| self::engine(&found)));
    // Since 6.1 there is always a journal, and whoever may not see the options sees the engine at least.
    if let Ok(options) = asked(store, doc! { "getCmdLineOpts": 1 }).await {
        findings.push(journal(&options));
    }
    findings
}

const FEATURES: &str = "featureCompatibilityVersion";
const LIFETIME: &str = "transactionLifetimeLimitSeconds";
const CONCERN: &str = "default write concern";
const ENGINE: &str = "storage engine";

fn unknown(subject: &str, why: &str) -> Finding {
    Finding::ok(subject, format!("not known, the user may not ask ({why}). clusterMonitor would let it"))
}

/// The status without its large sections.
fn quiet_status() -> Document {
    doc! { "serverStatus": 1, "metrics": 0, "wiredTiger": 0, "locks": 0, "repl": 0, "tcmalloc": 0 }
}

fn version(info: &Document) -> Finding {
    let version = info.get_str("version").unwrap_or("of an unknown version");
    if numbers(version) < OLDEST {
        return Finding::error(
            "version",
            format!("MongoDB {version}; oncebox needs 6.0 or newer: upgrade it"),
        );
    }
    Finding::ok("version", format!("MongoDB {version}"))
}

fn numbers(version: &str) -> [u32; 2] {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

fn compatibility(found: &Document) -> Finding {
    let features = found.get_document(FEATURES).ok();
    let version = features.and_then(|features| features.get_str("version").ok()).unwrap_or_default();
    if numbers(version) < OLDEST {
        return Finding::error(
            FEATURES,
            format!(
                "{version:?}; 6.0 is needed: run setFeatureCompatibilityVersion when all members are upgraded"
            ),
        );
    }
    if features.is_some_and(|features| features.contains_key("targetVersion")) {
        return Finding::warning(FEATURES, format!("{version}, and it is being changed: let that end first"));
    }
    Finding::ok(FEATURES, version)
}

fn lifetime(seconds: Option<i64>, lock_timeout: Duration) -> Finding {
    let Some(seconds) = seconds.and_then(|seconds| u64::try_from(seconds).ok()) else {
        return unknown(LIFETIME, "no number");
    };
    let lifetime = Duration::from_secs(seconds);
    if lifetime < LEAST_LIFETIME {
        return Finding::warning(
            LIFETIME,
            format!(
                "{seconds} s: a batch whose handlers take longer is undone, again and again, until its messages are given up. Set \
                 it to 60, or make batches smaller"
            ),
        );
    }
    if lifetime > MOST_LIFETIME {
        return Finding::warning(
            LIFETIME,
            format!(
                "{seconds} s: a process that is killed leaves its transaction to the server for so long, and copies of its \
                 messages wait. Set it to 60"
            ),
        );
    }
    let waits = lock_timeout.as_secs();
    Finding::ok(
        LIFETIME,
        format!(
            "{seconds} s for a batch with its handlers; a copy in another process is waited for {waits} s at a time"
        ),
    )
}

/// oncebox asks for the majority and its journals by itself. Other programs that write to the same collections may not.
fn write_concern(found: &Document) -> Finding {
    let default = found.get_document("defaultWriteConcern").ok();
    let majority = default.is_none_or(|concern| concern.get_str("w").is_ok_and(|w| w == "majority"));
    if majority {
        return Finding::ok(CONCERN, "majority");
    }
    let concern = default.map(ToString::to_string).unwrap_or_default();
    Finding::warning(
        CONCERN,
        format!(
            "{concern}: oncebox asks for the majority itself, but what your other programs write can be lost in a failover. Run \
             setDefaultRWConcern with {{w: \"majority\"}}"
        ),
    )
}

fn engine(status: &Document) -> Finding {
    let Ok(engine) = status.get_document("storageEngine") else { return unknown(ENGINE, "no answer") };
    let name = engine.get_str("name").unwrap_or("unknown");
    if !engine.get_bool("persistent").unwrap_or(true) {
        return Finding::error(
            ENGINE,
            format!(
                "{name} keeps nothing on a disk: what is acknowledged is lost with the process. Use wiredTiger"
            ),
        );
    }
    if !engine.get_bool("supportsCommittedReads").unwrap_or(true) {
        return Finding::error(
            ENGINE,
            format!(
                "{name} has no read concern majority: what is read may be undone by a failover. Use wiredTiger"
            ),
        );
    }
    Finding::ok(ENGINE, format!("{name}, with read concern majority"))
}

fn journal(options: &Document) -> Finding {
    let storage = options.get_document("parsed").and_then(|parsed| parsed.get_document("storage")).ok();
    let journal = storage.and_then(|storage| storage.get_document("journal").ok());
    if journal.is_some_and(|journal| journal.get_bool("enabled").is_ok_and(|on| !on)) {
        return Finding::error(
            "journal",
            "off: no commit can be confirmed. Start mongod without --nojournal (storage.journal.enabled)",
        );
    }
    Finding::ok("journal", "on")
}

#[cfg(test)]
mod tests {
    use oncebox_core::store::FindingLevel::{Error, Ok, Warning};

    use super::*;

    #[test]
    fn servers_that_are_too_old_are_told() {
        for (server, level) in [("6.0.5", Ok), ("8.0.0-rc1", Ok), ("5.0.31", Error), ("10.0.1", Ok)] {
            assert_eq!(version(&doc! { "version": server }).level, level, "{server}");
        }
        let features = |document: Document| compatibility(&doc! { FEATURES: document }).level;
        assert_eq!(features(doc! { "version": "6.0" }), Ok);
        assert_eq!(features(doc! { "version": "5.0" }), Error);
        assert_eq!(features(doc! { "version": "6.0", "targetVersion": "7.0" }), Warning);
    }

    #[test]
    fn settings_that_lose_something_are_told() {
        let concern = |document: Document| write_concern(&doc! { "defaultWriteConcern": document }).level;
        assert_eq!(concern(doc! { "w": "majority", "wtimeout": 0 }), Ok);
        assert_eq!(concern(doc! { "w": 1 }), Warning);
        assert_eq!(write_concern(&doc! {}).level, Ok);
        let engine = |persistent: bool, committed: bool| {
            let engine = doc! { "name": "x", "persistent": persistent, "supportsCommittedReads": committed };
            engine_level(&doc! { "storageEngine": engine })
        };
        assert_eq!(engine(true, true), Ok);
        assert_eq!(engine(false, true), Error);
        assert_eq!(engine(true, false), Error);
        let off = doc! { "parsed": { "storage": { "journal": { "enabled": false } } } };
        assert_eq!((journal(&off).level, journal(&doc! { "parsed": {} }).level), (Error, Ok));
    }

    fn engine_level(status: &Document) -> oncebox_core::store::FindingLevel {
        engine(status).level
    }

    #[test]
    fn lifetimes_of_transactions_are_judged() {
        let level = |seconds| lifetime(Some(seconds), Duration::from_secs(10)).level;
        assert_eq!((level(60), level(10), level(3600)), (Ok, Warning, Warning));
    }
}
