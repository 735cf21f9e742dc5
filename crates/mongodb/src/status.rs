//! What `oncebox status` and the dashboard read. Its cost does not grow with the collections.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, doc};
use oncebox_core::store::{
    ConsumerStatus, Duplicates, OutboxStatus, PositionStatus, Status, StoreResult, StoreStatus,
};

use crate::adopted;
use crate::claim::INBOX;
use crate::classify::Context;
use crate::dead::{DEAD, REPLAYED};
use crate::outbox::status;
use crate::position::{Folded, fold_all, whole};
use crate::purge::HORIZONS;
use crate::store::MongoStore;

/// A status that takes longer is not worth its load.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// More positions than this are not shown.
const MAX_POSITIONS: usize = 10_000;

const DOING: &str = "reading the status";

impl Status for MongoStore {
    async fn status(&self, count_cap: u64) -> StoreResult<StoreStatus> {
        self.patiently(DOING, async {
            let positions = fold_all(self, None, DOING).await?;
            Ok(StoreStatus {
                consumers: consumers(self, &positions, count_cap).await?,
                positions: positions.into_iter().take(MAX_POSITIONS).map(position).collect(),
                receipts_estimate: receipts_estimate(self, DOING).await?,
                outbox: outbox(self, count_cap).await?,
            })
        })
        .await
    }
}

/// The outbox, also for `check`.
pub(crate) async fn outbox(store: &MongoStore, count_cap: u64) -> StoreResult<OutboxStatus> {
    status::status(store, i64::try_from(count_cap).unwrap_or(i64::MAX)).await.context(DOING)
}

/// All consumers that have a position, a dead letter, a horizon or a replay.
async fn consumers(
    store: &MongoStore,
    positions: &[Folded],
    count_cap: u64,
) -> StoreResult<Vec<ConsumerStatus>> {
    let mut horizons: BTreeMap<String, Option<i64>> =
        positions.iter().map(|position| (position.consumer.clone(), None)).collect();
    let letters = store.aside(DEAD);
    // The server goes from one consumer to the next along the index.
    let with_letters = letters.distinct("consumer", doc! {}).max_time(LIMIT).await.context(DOING)?;
    for consumer in with_letters {
        if let Bson::String(consumer) = consumer {
            horizons.entry(consumer).or_default();
        }
    }
    let mut purged = store.aside(HORIZONS).find(doc! {}).max_time(LIMIT).await.context(DOING)?;
    while let Some(horizon) = purged.try_next().await.context(DOING)? {
        if let (Ok(consumer), Ok(before)) = (horizon.get_str("_id"), horizon.get_datetime("purged_before")) {
            horizons.insert(consumer.to_owned(), Some(before.timestamp_millis()));
        }
    }
    let mut replays: BTreeMap<String, u64> = BTreeMap::new();
    let mut counted = store.aside(REPLAYED).find(doc! {}).max_time(LIMIT).await.context(DOING)?;
    while let Some(count) = counted.try_next().await.context(DOING)? {
        if let (Ok(consumer), Some(replayed)) = (count.get_str("_id"), whole(count.get("replayed"))) {
            horizons.entry(consumer.to_owned()).or_default();
            replays.insert(consumer.to_owned(), replayed.unsigned_abs());
        }
    }
    let mut consumers = Vec::with_capacity(horizons.len());
    for (consumer, purged_before_ms) in horizons {
        let dead_letters = match count_cap {
            // Here a limit of none is no limit.
            0 => 0,
            cap => {
                let count = letters.count_documents(doc! { "consumer": &consumer }).limit(cap);
                count.max_time(LIMIT).await.context(DOING)?
            }
        };
        let replayed = replays.get(&consumer).copied().unwrap_or_default();
        consumers.push(ConsumerStatus { consumer, dead_letters, purged_before_ms, replayed });
    }
    Ok(consumers)
}

/// How many receipts there are, as the server keeps count of it.
pub(crate) async fn receipts_estimate(store: &MongoStore, doing: &str) -> StoreResult<u64> {
    let receipts = match adopted::adopted(store) {
        Some(adopt) => adopted::collection(&store.inner.aside, adopt),
        None => store.aside(INBOX),
    };
    receipts.estimated_document_count().max_time(LIMIT).await.context(doing)
}

fn position(folded: Folded) -> PositionStatus {
    PositionStatus {
        next_offset: folded.next_offset,
        log: folded.log,
        caught_up_ms: folded.caught_up_at.map(|at| at.timestamp_millis()),
        retired: folded.retired_at.is_some(),
        epoch: folded.epoch,
        starts: u32::try_from(folded.starts).unwrap_or(u32::MAX),
        applied: folded.applied.unsigned_abs(),
        duplicates: Duplicates::stored(
            folded.duplicates.unsigned_abs(),
            folded.redelivered.unsigned_abs(),
            folded.rewound.unsigned_abs(),
            folded.published_twice.unsigned_abs(),
        ),
        updated_at_ms: folded.updated_at.map_or(0, |at| at.timestamp_millis()),
        consumer: folded.consumer,
        topic: folded.topic,
        partition: folded.partition,
    }
}
