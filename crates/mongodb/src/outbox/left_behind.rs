//! Events that wait for nobody.
//!
//! Whoever takes the first held event of a key away makes the next one due. An operator who does it by hand does not, so the
//! housekeeping looks for keys whose first held event waits for another.

use futures_util::TryStreamExt;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::error::Result;
use oncebox_core::outbox::events_committed;
use oncebox_core::store::StoreResult;

use super::waiting::behind;
use super::{HELD, OUTBOX, numbers, read};
use crate::classify::Context;
use crate::position::whole;
use crate::store::MongoStore;

/// How many events one step looks at.
const STEP_EVENTS: usize = 1000;

const DOING: &str = "looking for events that wait for nobody";

/// Finds events that wait for one that is gone, and lets them go on.
pub(super) async fn free_left_behind(store: &MongoStore) -> StoreResult<()> {
    let topics = store
        .patiently(DOING, async {
            read::topics(&store.inner.aside, &[HELD], "", read::MAX_TOPICS).await.context(DOING)
        })
        .await?;
    for at in topics {
        let mut after = Some(Bson::Null);
        while let Some(key) = after {
            let step = async { free_after(store, &at.topic, key).await.context(DOING) };
            after = store.patiently(DOING, step).await?;
        }
    }
    Ok(())
}

/// One step; `None` after the last key. It sees the first event of each key that begins in it, and the next step goes on behind
/// its last key: so a key with a million events costs no more than one step.
async fn free_after(store: &MongoStore, topic: &str, key: Bson) -> Result<Option<Bson>> {
    // A comparison stays among values of one type; all keys are binary.
    let further = match &key {
        Bson::Null => doc! { "$type": "binData" },
        last => doc! { "$gt": last },
    };
    let outbox = store.aside(OUTBOX);
    let found = outbox
        .find(doc! { "state": HELD, "topic": topic, "key": further })
        .sort(doc! { "key": 1, "_id": 1 })
        .limit(i64::try_from(STEP_EVENTS).unwrap_or(i64::MAX))
        .projection(doc! { "key": 1, "held_until": 1 });
    let events: Vec<Document> = found.await?.try_collect().await?;
    let waiting = left_behind(&events);
    if !waiting.is_empty() {
        // Only those that still wait. If one of them has another before it meanwhile, the relay lets it wait again.
        let still = doc! { "_id": { "$in": numbers(&waiting) }, "state": HELD, "held_until": behind() };
        let due = vec![doc! { "$set": { "held_until": "$$NOW" } }];
        let freed = outbox.update_many(still, due).await?.matched_count;
        if freed > 0 {
            tracing::info!(freed, "let events go on that waited for nobody");
            events_committed();
        }
    }
    Ok(events.last().filter(|_| events.len() >= STEP_EVENTS).and_then(|last| last.get("key").cloned()))
}

/// Those that come first for their key and wait.
fn left_behind(events: &[Document]) -> Vec<i64> {
    let mut before: Option<&Binary> = None;
    let mut waiting = Vec::new();
    for event in events {
        let Some(Bson::Binary(key)) = event.get("key") else { continue };
        if before != Some(key) && event.get_datetime("held_until").is_ok_and(|until| *until == behind()) {
            waiting.extend(whole(event.get("_id")));
        }
        before = Some(key);
    }
    waiting
}
