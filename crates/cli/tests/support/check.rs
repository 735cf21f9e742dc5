//! What must hold in the end, whatever happened: counted from the database and from Kafka.

use std::collections::{BTreeMap, BTreeSet};

use super::orders::Order;
use super::world::World;

impl World {
    /// Each of these orders has exactly one effect, nothing else has, the order of each article held, receipts are
    /// exactly the effects and dead letters, and Kafka was not told more than the database knows.
    pub(crate) async fn has_exactly(&self, orders: &[Order]) {
        compare_ids("effects", &self.effects_of(&self.consumer).await, orders);
        self.is_consistent().await;
        self.receipts_are_effects().await;
        self.kafka_is_not_ahead().await;
    }

    /// Each of these orders has exactly one effect, and nothing else has, whatever the order of replays.
    pub(crate) async fn has_exactly_in_any_order(&self, orders: &[Order]) {
        compare_ids("effects", &self.effects_of(&self.consumer).await, orders);
        self.receipts_are_effects().await;
    }

    /// How often each message has an effect.
    pub(crate) async fn effects_of(&self, consumer: &str) -> BTreeMap<String, usize> {
        count(self.db.message_ids("ledger", consumer).await)
    }

    /// The order per article, and the sum of the ledger against what is gone from the stock.
    pub(crate) async fn is_consistent(&self) {
        let swapped = self.db.swapped().await;
        assert!(swapped.is_empty(), "applied behind a later order of the same article: {swapped:?}");
        let (gone, taken) = self.db.gone_and_taken().await;
        assert_eq!(gone, taken, "gone from the stock against the ledger");
    }

    /// Every effect and every dead letter has its receipt, and no receipt is without.
    pub(crate) async fn receipts_are_effects(&self) {
        let (db, consumer) = (&self.db, &self.consumer);
        let receipts = db.message_ids("oncebox_inbox", consumer).await;
        let effects = db.message_ids("ledger", consumer).await;
        let letters = db.message_ids("oncebox_dead", consumer).await;
        let settled: BTreeSet<String> =
            effects.into_iter().chain(letters.into_iter().filter(|id| !id.is_empty())).collect();
        compare("receipts against effects and dead letters:", &count(receipts), &settled);
    }

    /// The committed offset of no partition is beyond its position.
    pub(crate) async fn kafka_is_not_ahead(&self) {
        // In this order, since both move.
        let committed = self.topic.committed(&self.consumer);
        let positions = self.positions_of(&self.consumer).await;
        for (partition, committed) in (0..).zip(committed) {
            let next = positions.iter().find(|(p, _)| *p == partition).map_or(0, |(_, next)| *next);
            assert!(
                committed.unwrap_or(0) <= next,
                "partition {partition}: committed {committed:?}, position {next}"
            );
        }
    }

    /// In one snapshot, in the middle of the work: receipts and effects are the same set (no dead letters).
    pub(crate) async fn snapshot_is_whole(&self) {
        let odd = self.db.odd_receipts().await;
        assert_eq!(
            odd, 0,
            "receipts without effect, or effects without a receipt of their own, seen in one snapshot"
        );
    }
}

fn count(ids: Vec<String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for id in ids {
        *counts.entry(id).or_default() += 1;
    }
    counts
}

/// Fails unless each of these orders, and nothing else, was found once.
#[track_caller]
pub(crate) fn compare_ids(what: &str, found: &BTreeMap<String, usize>, orders: &[Order]) {
    compare(what, found, &orders.iter().map(|order| order.id.clone()).collect());
}

/// Fails with the first few ids that are missing, too many or unexpected.
#[track_caller]
fn compare(what: &str, found: &BTreeMap<String, usize>, wanted: &BTreeSet<String>) {
    let few = |ids: Vec<&String>| format!("{} {:?}", ids.len(), &ids[..ids.len().min(5)]);
    let missing: Vec<&String> = wanted.iter().filter(|id| !found.contains_key(*id)).collect();
    let extra: Vec<&String> = found.keys().filter(|id| !wanted.contains(*id)).collect();
    let twice: Vec<&String> = found.iter().filter(|(_, count)| **count > 1).map(|(id, _)| id).collect();
    assert!(
        missing.is_empty() && extra.is_empty() && twice.is_empty(),
        "{what} missing: {}; unexpected: {}; more than once: {}",
        few(missing),
        few(extra),
        few(twice)
    );
}
