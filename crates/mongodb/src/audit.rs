//! What operators have done.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use oncebox_core::store::{Action, ActionNote, Audit, AuditEntry, AuditFilter, StoreResult};

use crate::classify::Context;
use crate::counter;
use crate::position::whole;
use crate::store::{MongoStore, server_now};
use crate::time::{date, milliseconds};

const AUDIT: &str = "oncebox_audit";

/// How many entries one step removes.
const STEP_DOCUMENTS: i64 = 1000;

impl Audit for MongoStore {
    async fn begin_action(&self, action: &Action) -> StoreResult<i64> {
        let doing = "writing the audit";
        self.patiently(doing, async {
            let number = counter::draw(&self.inner.aside, counter::AUDIT, 1).await?;
            // Only a pipeline has the clock of the server, and only a literal is not read as the name of a field.
            let entry = doc! {
                "_id": number, "at": "$$NOW", "ended_at": null, "who": { "$literal": action.who() },
                "action": { "$literal": action.action() },
                "consumer": action.consumer().map(|consumer| doc! { "$literal": consumer }),
                "parameters": { "$literal": action.parameters().to_string() }, "result": null, "error": null,
            };
            let begin = vec![doc! { "$replaceWith": entry }];
            self.aside(AUDIT).update_one(doc! { "_id": number }, begin).upsert(true).await.context(doing)?;
            Ok(number)
        })
        .await
    }

    async fn note_action(&self, number: i64, note: &ActionNote) -> StoreResult<()> {
        let doing = "writing the audit";
        let mut set = Document::new();
        if let Some(result) = note.result() {
            set.insert("result", doc! { "$literal": result.to_string() });
        }
        if let Some(error) = note.error() {
            set.insert("error", doc! { "$literal": error });
        }
        if note.is_over() {
            set.insert("ended_at", "$$NOW");
        }
        if set.is_empty() {
            return Ok(());
        }
        self.patiently(doing, async {
            let entries = self.aside(AUDIT);
            let told = entries.update_one(doc! { "_id": number }, vec![doc! { "$set": set }]).await;
            told.context(doing).map(|_| ())
        })
        .await
    }

    async fn actions(&self, filter: &AuditFilter) -> StoreResult<Vec<AuditEntry>> {
        let doing = "reading the audit";
        // Here a limit of none is no limit.
        if filter.limit == 0 {
            return Ok(Vec::new());
        }
        let mut meant = Document::new();
        if let Some(before) = filter.before {
            meant.insert("_id", doc! { "$lt": before });
        }
        for (field, text) in
            [("who", &filter.who), ("action", &filter.action), ("consumer", &filter.consumer)]
        {
            if let Some(text) = text {
                meant.insert(field, doc! { "$eq": text });
            }
        }
        self.patiently(doing, async {
            let entries = self.aside(AUDIT);
            let found = entries.find(meant).sort(doc! { "_id": -1 }).limit(i64::from(filter.limit));
            let found: Vec<Document> = found.await.context(doing)?.try_collect().await.context(doing)?;
            Ok(found.iter().map(entry).collect())
        })
        .await
    }

    async fn purge_actions(&self, keep: Duration) -> StoreResult<u64> {
        let doing = "purging the audit";
        let now = self.patiently(doing, server_now(self, doing)).await?;
        let old = doc! { "at": { "$lt": date(now.saturating_sub(milliseconds(keep))) } };
        let mut purged = 0;
        loop {
            let step = async {
                let entries = self.aside(AUDIT);
                let found = entries.find(old.clone()).sort(doc! { "at": 1 }).limit(STEP_DOCUMENTS);
                let found = found.projection(doc! { "_id": 1 }).await.context(doing)?;
                let found: Vec<Document> = found.try_collect().await.context(doing)?;
                let numbers: Vec<Bson> = found.iter().filter_map(|entry| entry.get("_id").cloned()).collect();
                entries.delete_many(doc! { "_id": { "$in": numbers } }).await.context(doing)
            };
            let removed = self.patiently(doing, step).await?.deleted_count;
            purged += removed;
            if removed < STEP_DOCUMENTS.unsigned_abs() {
                return Ok(purged);
            }
        }
    }
}

fn entry(found: &Document) -> AuditEntry {
    let text = |field: &str| found.get_str(field).ok().map(str::to_owned);
    let at = |field: &str| found.get_datetime(field).ok().map(|at| at.timestamp_millis());
    let json = |text: String| text.parse().unwrap_or_default();
    AuditEntry {
        number: whole(found.get("_id")).unwrap_or_default(),
        at_ms: at("at").unwrap_or_default(),
        ended_at_ms: at("ended_at"),
        who: text("who").unwrap_or_default(),
        action: text("action").unwrap_or_default(),
        consumer: text("consumer"),
        parameters: text("parameters").map(json).unwrap_or_default(),
        result: text("result").map(json),
        error: text("error"),
    }
}
