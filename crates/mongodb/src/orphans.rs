//! Transactions of processes that are gone.
//!
//! A transaction belongs to a session and not to a connection. When a process is killed, the server keeps its open transaction for up to
//! a minute (`transactionLifetimeLimitSeconds`), and whoever wants to write the same documents is refused meanwhile: receipts of the
//! messages that are delivered again, first of all. So every store gives its connections a name of their own, and who is refused
//! looks for open transactions whose name has no connection left. They are ended. Nothing can be lost by that: such a
//! transaction is undone as a whole, and its process, should it live and only be cut off, runs it again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;
use oncebox_core::error::Error;
use uuid::Uuid;

use crate::classify::Context;
use crate::store::MongoStore;

/// Looking costs the server some milliseconds.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// The longest name that the server takes.
const MAX_NAME_BYTES: usize = 128;
const MARK: &str = "oncebox-";

/// The name of a store's connections, after the application's own.
pub(crate) fn name(given: Option<&str>) -> String {
    let own = format!("{MARK}{}", Uuid::now_v7().simple());
    match given {
        Some(given) if given.len() + 1 + own.len() <= MAX_NAME_BYTES => format!("{given} {own}"),
        // Without a mark it is left alone.
        Some(given) => given.to_owned(),
        None => own,
    }
}

/// When a store looked the last time.
#[derive(Debug)]
pub(crate) struct Looks {
    began: Instant,
    /// In milliseconds since then; 0 for never.
    last: AtomicU64,
}

impl Default for Looks {
    fn default() -> Self {
        Self { began: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Looks {
    fn is_due(&self) -> bool {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let last = self.last.load(Ordering::Relaxed);
        let between = u64::try_from(BETWEEN_LOOKS.as_millis()).unwrap_or(u64::MAX);
        let due = last == 0 || now.saturating_sub(last) >= between;
        due && self.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl MongoStore {
    /// Ends open transactions whose processes are gone, and says how many there were. Batches do this when they are in each
    /// other's way; whoever is about to drop a collection would wait for the server to do it, a minute or two.
    ///
    /// # Errors
    /// `away` if there is no primary.
    pub async fn end_orphans(&self) -> Result<usize, Error> {
        let doing = "looking for transactions of processes that are gone";
        Ok(self.patiently(doing, async { end_now(self).await.context(doing) }).await?)
    }
}

/// Ends the transactions of processes that are gone. At most once in a while; a failure is no harm, since the server does it later.
pub(crate) async fn end(store: &MongoStore) {
    if !store.inner.looks.is_due() {
        return;
    }
    match store.end_orphans().await {
        Ok(0) => {}
        Ok(ended) => tracing::info!(ended, "ended transactions of a process that is gone"),
        Err(error) => tracing::debug!(%error, "could not look for transactions of processes that are gone"),
    }
}

async fn end_now(store: &MongoStore) -> mongodb::error::Result<usize> {
    let admin = store.inner.aside.client().database("admin");
    // Those of the same user, whom it needs no right to see and to end.
    let operations =
        doc! { "$currentOp": { "allUsers": false, "idleSessions": true, "idleConnections": true } };
    let ours = doc! { "$match": { "appName": { "$regex": format!("{MARK}[0-9a-f]{{32}}$") } } };
    let fields =
        doc! { "$project": { "appName": 1, "type": 1, "lsid": 1, "in": { "$gt": ["$transaction", null] } } };
    // It is no data, and so is of no majority.
    let found = admin.aggregate([operations, ours, fields]).read_concern(ReadConcern::local()).await?;
    let found: Vec<Document> = found.try_collect().await?;
    let name = |operation: &Document| operation.get_str("appName").unwrap_or_default().to_owned();
    let is_session = |operation: &Document| operation.get_str("type").is_ok_and(|kind| kind == "idleSession");
    let alive: HashSet<String> = found.iter().filter(|operation| !is_session(operation)).map(name).collect();
    let orphans: Vec<Bson> = found
        .iter()
        .filter(|operation| is_session(operation) && operation.get_bool("in").unwrap_or(false))
        .filter(|operation| !alive.contains(&name(operation)))
        .filter_map(|operation| operation.get_document("lsid").ok())
        .filter_map(|session| session.get("id").map(|id| Bson::Document(doc! { "id": id.clone() })))
        .collect();
    if !orphans.is_empty() {
        admin.run_command(doc! { "killSessions": orphans.clone() }).await?;
    }
    Ok(orphans.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_has_a_name_of_its_own() {
        assert_ne!(name(None), name(None));
        assert!(name(Some("shop")).starts_with("shop oncebox-"));
        let long = "x".repeat(100);
        assert_eq!(name(Some(&long)), long);
    }

    #[test]
    fn looks_are_rare() {
        let looks = Looks::default();
        assert!(looks.is_due());
        assert!(!looks.is_due());
    }
}
