//! Up to when receipts may go, per consumer.

use std::collections::BTreeMap;

use mongodb::bson::{Document, doc};
use mongodb::error::Result;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{PurgePass, Retention, StoreResult};

use super::DOING;
use crate::classify::Context;
use crate::position::{Folded, fold_all};
use crate::store::{MongoStore, server_now};
use crate::time::date;
use crate::tx::MongoTx;
use crate::txn::MongoTxn;

/// A document for each consumer, named by it.
pub(crate) const HORIZONS: &str = "oncebox_horizon";

/// Consumers, and the time before which their receipts may go, in milliseconds since 1970.
pub(super) type Horizons = BTreeMap<String, i64>;

/// Receipts older than this may be gone.
pub(super) async fn purged_before(txn: &mut MongoTxn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
    let tx: &mut MongoTx = txn;
    let horizons = tx.database.collection::<Document>(HORIZONS);
    let found = horizons.find_one(doc! { "_id": consumer.as_str() }).session(&mut tx.session).await;
    let found = found.context("reading the horizon")?;
    let before = found.as_ref().and_then(|horizon| horizon.get_datetime("purged_before").ok());
    Ok(before.map(|at| at.timestamp_millis()))
}

/// The horizon of each consumer, fixed for the pass. One that would lie before 1970 has none, and keeps everything.
pub(super) async fn horizons(store: &MongoStore, pass: &PurgePass<'_>) -> StoreResult<Horizons> {
    store
        .patiently(DOING, async {
            // The earlier of two clocks counts, so that no single one that jumps empties the collection.
            let now = server_now(store, DOING).await?.min(pass.now_ms);
            let mut horizons = Horizons::new();
            for retention in pass.retention {
                let positions = fold_all(store, Some(retention.consumer.as_str()), DOING).await?;
                let horizon = horizon(&positions, retention, now);
                horizons.extend(horizon.map(|ms| (retention.consumer.as_str().to_owned(), ms)));
            }
            Ok(horizons)
        })
        .await
}

/// How far all partitions of a consumer are caught up, minus the retention. One that stands still, or was never caught up,
/// holds the receipts that its next messages may need, unless an operator has retired it. A consumer without positions claims in
/// a loop of its own; nobody knows its progress, so time counts.
fn horizon(positions: &[Folded], retention: &Retention, now: i64) -> Option<i64> {
    let mut caught_up = now;
    for position in positions.iter().filter(|position| position.retired_at.is_none()) {
        caught_up = caught_up.min(position.caught_up_at?.timestamp_millis());
    }
    let keep = i64::try_from(retention.keep.as_millis()).unwrap_or(i64::MAX);
    caught_up.checked_sub(keep).filter(|horizon| *horizon > 0)
}

/// Writes down up to when receipts of a consumer may be gone. In the transaction that deletes them: whoever sees a receipt missing
/// sees the horizon as well.
pub(super) async fn write(tx: &mut MongoTx, consumer: &str, ms: i64) -> Result<()> {
    let horizons = tx.database.collection::<Document>(HORIZONS);
    let later = doc! { "$max": { "purged_before": date(ms) } };
    horizons.update_one(doc! { "_id": consumer }, later).upsert(true).session(&mut tx.session).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::bson::DateTime;

    use super::*;

    #[test]
    fn the_slowest_partition_that_is_not_retired_counts() {
        let at = |caught_up: Option<i64>, retired: bool| Folded {
            caught_up_at: caught_up.map(DateTime::from_millis),
            retired_at: retired.then(DateTime::now),
            ..Folded::default()
        };
        let retention =
            Retention { consumer: ConsumerName::new("stock").unwrap(), keep: Duration::from_millis(100) };
        let of = |positions: &[Folded]| horizon(positions, &retention, 1000);
        assert_eq!(of(&[]), Some(900));
        assert_eq!(of(&[at(Some(700), false), at(Some(5000), false)]), Some(600));
        assert_eq!(of(&[at(Some(700), false), at(None, false)]), None);
        assert_eq!(of(&[at(Some(700), false), at(None, true)]), Some(600));
        assert_eq!(of(&[at(Some(100), false)]), None);
    }
}
