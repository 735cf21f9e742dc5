//! Consumers that an operator has paused.

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{MAX_PAUSES, Pause, PauseNote, Pauses, StoreResult};

use crate::classify::{Context, DUPLICATE_KEY, code_of};
use crate::store::MongoStore;

const PAUSED: &str = "oncebox_paused";

impl Pauses for MongoStore {
    async fn pause(&self, consumer: &ConsumerName, note: &PauseNote) -> StoreResult<bool> {
        let doing = "pausing a consumer";
        // What is there already stays: the document is merged over the new one. Only a pipeline has the clock of the server, and
        // only a literal is not read as the name of a field.
        let reason = note.reason().map(|reason| doc! { "$literal": reason });
        let new = doc! { "paused_at": "$$NOW", "paused_by": { "$literal": note.who() }, "reason": reason };
        let pause = vec![doc! { "$replaceWith": { "$mergeObjects": [new, "$$ROOT"] } }];
        self.patiently(doing, async {
            let paused = self.aside(PAUSED);
            match paused.update_one(doc! { "_id": consumer.as_str() }, pause).upsert(true).await {
                Ok(done) => Ok(done.upserted_id.is_some()),
                // Somebody else was faster.
                Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => Ok(false),
                Err(error) => Err(error).context(doing),
            }
        })
        .await
    }

    async fn resume(&self, consumer: &ConsumerName) -> StoreResult<bool> {
        let doing = "resuming a consumer";
        self.patiently(doing, async {
            let gone = self.aside(PAUSED).delete_one(doc! { "_id": consumer.as_str() }).await;
            Ok(gone.context(doing)?.deleted_count > 0)
        })
        .await
    }

    async fn paused(&self) -> StoreResult<Vec<Pause>> {
        let doing = "reading which consumers are paused";
        self.patiently(doing, async {
            let most = i64::try_from(MAX_PAUSES).unwrap_or(i64::MAX);
            let found = self.aside(PAUSED).find(doc! {}).sort(doc! { "_id": 1 }).limit(most).await;
            let found: Vec<Document> = found.context(doing)?.try_collect().await.context(doing)?;
            Ok(found.iter().map(pause).collect())
        })
        .await
    }
}

fn pause(found: &Document) -> Pause {
    let text = |field: &str| found.get_str(field).ok().map(str::to_owned);
    Pause {
        consumer: text("_id").unwrap_or_default(),
        since_ms: found.get_datetime("paused_at").map_or(0, |at| at.timestamp_millis()),
        by: text("paused_by").unwrap_or_default(),
        reason: text("reason"),
    }
}
