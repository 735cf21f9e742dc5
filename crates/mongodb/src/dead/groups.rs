//! Dead letters whose errors read alike.

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Result;
use oncebox_core::store::{
    DeadGroup, MAX_KEYED_LETTERS, MAX_SUMMARY_BYTES, StoreResult, error_group, group_prefix,
};

use super::DEAD;
use crate::classify::Context;
use crate::position::whole;
use crate::status::LIMIT;
use crate::store::MongoStore;

const DOING: &str = "grouping dead letters";

/// The groups of a consumer, or of all: from one to the next along the index.
pub(super) async fn dead_groups(
    store: &MongoStore,
    consumer: Option<&str>,
    limit: u32,
    count_cap: u64,
) -> StoreResult<Vec<DeadGroup>> {
    let mut last = consumer.map(group_prefix).unwrap_or_default();
    let end = format!("{last}~");
    let letters = store.aside(DEAD);
    let mut groups = Vec::new();
    for _ in 0..limit {
        let behind = doc! { "error_group": { "$gt": &last, "$lte": &end } };
        let next =
            letters.find_one(behind).sort(doc! { "error_group": 1 }).projection(doc! { "error_group": 1 });
        let Some(next) = next.max_time(LIMIT).await.context(DOING)? else { break };
        last = next.get_str("error_group").unwrap_or_default().to_owned();
        // Somebody may have taken the last letter of it.
        if let Some(group) = group(&letters, &last, count_cap).await.context(DOING)?
            // Two consumers may share the beginning of their groups.
            && consumer.is_none_or(|consumer| consumer == group.consumer)
        {
            groups.push(group);
        }
    }
    Ok(groups)
}

async fn group(letters: &Collection<Document>, name: &str, count_cap: u64) -> Result<Option<DeadGroup>> {
    let most = i32::try_from(MAX_SUMMARY_BYTES).unwrap_or(i32::MAX);
    let of_group = || doc! { "error_group": name };
    let fields = || doc! { "consumer": 1, "failed_at": 1, "error": { "$substrCP": ["$error", 0, most] } };
    let one = |order: i32| {
        letters.find_one(of_group()).sort(doc! { "_id": order }).projection(fields()).max_time(LIMIT)
    };
    let (Some(newest), Some(oldest)) = (one(-1).await?, one(1).await?) else { return Ok(None) };
    // Here a limit of none is no limit.
    let (count, keys) = if count_cap == 0 {
        (0, 0)
    } else {
        let count = letters.count_documents(of_group()).limit(count_cap).max_time(LIMIT).await?;
        (count, keys(letters, name, count_cap.min(MAX_KEYED_LETTERS)).await?)
    };
    let at = |letter: &Document| letter.get_datetime("failed_at").map_or(0, |at| at.timestamp_millis());
    let text = |field: &str| newest.get_str(field).unwrap_or_default().to_owned();
    Ok(Some(DeadGroup {
        group: name.to_owned(),
        consumer: text("consumer"),
        error: text("error"),
        letters: count,
        keys,
        first_ms: at(&oldest),
        last_ms: at(&newest),
        newest: whole(newest.get("_id")).unwrap_or_default(),
    }))
}

/// How many different keys the oldest letters have.
async fn keys(letters: &Collection<Document>, name: &str, most: u64) -> Result<u64> {
    let pipeline = vec![
        doc! { "$match": { "error_group": name } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": i64::try_from(most).unwrap_or(i64::MAX) },
        doc! { "$match": { "key_hash": { "$ne": Bson::Null } } },
        doc! { "$group": { "_id": { "topic": "$topic", "partition": "$partition", "key": "$key_hash" } } },
        doc! { "$count": "keys" },
    ];
    let counted: Vec<Document> = letters.aggregate(pipeline).max_time(LIMIT).await?.try_collect().await?;
    let keys = counted.first().and_then(|counted| whole(counted.get("keys")));
    Ok(keys.unwrap_or_default().unsigned_abs())
}

/// Gives letters their group that have none.
pub(super) async fn group_letters(store: &MongoStore, limit: u32) -> StoreResult<u64> {
    // Here a limit of none is no limit.
    if limit == 0 {
        return Ok(0);
    }
    let letters = store.aside(DEAD);
    let found = letters.find(doc! { "error_group": null }).sort(doc! { "_id": 1 }).limit(i64::from(limit));
    let found = found.projection(doc! { "consumer": 1, "error": 1 }).await.context(DOING)?;
    let found: Vec<Document> = found.try_collect().await.context(DOING)?;
    let mut named = 0;
    for letter in &found {
        let text = |field: &str| letter.get_str(field).unwrap_or_default();
        let name = doc! { "$set": { "error_group": error_group(text("consumer"), text("error")) } };
        let this = doc! { "_id": letter.get("_id").cloned().unwrap_or(Bson::Null), "error_group": null };
        named += letters.update_one(this, name).await.context(DOING)?.modified_count;
    }
    Ok(named)
}
