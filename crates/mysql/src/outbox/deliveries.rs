//! What became of the deliveries of a batch.

use std::collections::{BTreeMap, HashMap, HashSet};

use oncebox_core::store::{Deliveries, HeldEvent, ParkedEvent, StoreResult};
use sqlx::{MySqlConnection, Row};

use super::waiting::{self, HeldKey, Waits};
use super::{LOCKED, STATEMENT_NUMBERS, change, events_by_seq, fetch, list, shard};
use crate::classify::Context;
use crate::dead::storable_error;
use crate::quote::text;
use crate::store::MysqlStore;
use crate::time::milliseconds;
use crate::txn::MysqlTxn;

/// The longest message of statements.
const MESSAGE_BYTES: usize = 512 * 1024;

/// Writes it down in one transaction.
pub(super) async fn record_deliveries(store: &MysqlStore, deliveries: &Deliveries) -> StoreResult<()> {
    let mut txn = store.begin().await?;
    let mut keys = publish(&mut txn, deliveries).await.context("removing published events")?;
    if !deliveries.held.is_empty() || !deliveries.parked.is_empty() {
        let events = lock_events(&mut txn, deliveries).await.context("locking events")?;
        let shards = still_leased(&mut txn, deliveries).await.context("looking at the shards")?;
        // Leases cannot be renewed from here on, so nothing is waited for as long as a lease lasts.
        let hurry = sqlx::raw_sql("SET SESSION innodb_lock_wait_timeout = 1").execute(&mut *txn).await;
        hurry.context("looking at the shards")?;
        let mine: HashMap<i64, &Event> = events
            .iter()
            .filter(|event| shards.contains(&event.shard))
            .map(|event| (event.seq, event))
            .collect();
        keys.extend(park_events(&mut txn, &deliveries.parked, &mine).await.context("parking events")?);
        hold(&mut txn, &deliveries.held, &mine).await.context("holding events")?;
    }
    waiting::follow(&mut txn, keys).await.context("letting events go on")?;
    txn.commit_own("recording deliveries").await
}

/// Removes published events, or marks them. Returns the keys of those that were held. Nearly none are: so the first statement
/// takes those that are not, and only if it did not find all of them the others are looked for.
async fn publish(conn: &mut MySqlConnection, deliveries: &Deliveries) -> sqlx::Result<Vec<HeldKey>> {
    let mut keys = Vec::new();
    // In their order, so that two relays that record the same events do not deadlock.
    let mut seqs = deliveries.published.clone();
    seqs.sort_unstable();
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let not_held = format!("{} AND o.held_until IS NULL", published(deliveries.keep, part));
        if change(conn, not_held).await? < part.len() as u64 {
            let held = waiting::lock_held(conn, part).await?;
            change(conn, published(deliveries.keep, part)).await?;
            keys.extend(held.into_values());
        }
    }
    Ok(keys)
}

fn published(keep: bool, seqs: &[i64]) -> String {
    let events = events_by_seq(seqs);
    if keep {
        format!(
            "UPDATE {events} SET o.published_at = UTC_TIMESTAMP(6), o.held_until = NULL, o.parked_at = NULL \
             WHERE o.published_at IS NULL"
        )
    } else {
        format!("DELETE o FROM {events} WHERE TRUE")
    }
}

/// A pending event whose row is locked.
struct Event {
    seq: i64,
    shard: u16,
    held: Option<HeldKey>,
}

/// Comes before the shards are locked: an operator may hold such a row for long, and who waits for it must not keep all
/// relays from renewing their leases.
async fn lock_events(conn: &mut MySqlConnection, deliveries: &Deliveries) -> sqlx::Result<Vec<Event>> {
    let held = deliveries.held.iter().map(|event| event.seq);
    let mut seqs: Vec<i64> = held.chain(deliveries.parked.iter().map(|event| event.seq)).collect();
    seqs.sort_unstable();
    let mut events = Vec::with_capacity(seqs.len());
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let sql = format!(
            "SELECT o.seq, o.shard, o.held_key FROM {} WHERE o.published_at IS NULL AND o.parked_at IS NULL {LOCKED}",
            events_by_seq(part)
        );
        for row in fetch(conn, sql).await? {
            let (seq, held) = (row.try_get(0)?, row.try_get(2)?);
            events.push(Event { seq, shard: shard(row.try_get(1)?), held });
        }
    }
    Ok(events)
}

/// The shards that still belong to whoever read the batch. They are locked, so that nobody takes them over before this
/// transaction is through.
async fn still_leased(conn: &mut MySqlConnection, deliveries: &Deliveries) -> sqlx::Result<HashSet<u16>> {
    let leases: HashMap<u16, i64> =
        deliveries.leases.iter().map(|lease| (lease.shard, lease.epoch)).collect();
    let shards: Vec<u16> = leases.keys().copied().collect();
    if shards.is_empty() {
        return Ok(HashSet::new());
    }
    let sql = format!(
        "SELECT shard, epoch FROM oncebox_shard FORCE INDEX (PRIMARY) WHERE shard IN ({}) \
         ORDER BY shard LOCK IN SHARE MODE",
        list(&shards)
    );
    let mut mine = HashSet::new();
    for row in fetch(conn, sql).await? {
        let shard = shard(row.try_get(0)?);
        if leases.get(&shard) == Some(&row.try_get(1)?) {
            mine.insert(shard);
        }
    }
    Ok(mine)
}

/// Returns the keys of those that were held.
async fn park_events(
    txn: &mut MysqlTxn,
    parked: &[ParkedEvent],
    mine: &HashMap<i64, &Event>,
) -> sqlx::Result<Vec<HeldKey>> {
    let mut alike: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut keys = Vec::new();
    for event in parked {
        if let Some(row) = mine.get(&event.seq) {
            alike.entry(storable_error(&event.error)).or_default().push(event.seq);
            keys.extend(row.held.clone());
        }
    }
    let set = |error: &str| {
        format!(
            "o.parked_at = UTC_TIMESTAMP(6), o.held_until = NULL, o.attempts = o.attempts + 1, o.error = {}",
            text(error)
        )
    };
    update(txn, alike.iter().map(|(error, seqs)| (set(error), seqs))).await?;
    Ok(keys)
}

/// First all of them get their times; then those that were not tried and are behind a held one lose theirs again.
async fn hold(txn: &mut MysqlTxn, held: &[HeldEvent], mine: &HashMap<i64, &Event>) -> sqlx::Result<()> {
    let mut alike: BTreeMap<(i64, Option<&str>), Vec<i64>> = BTreeMap::new();
    let mut untried = Vec::new();
    for event in held.iter().filter(|event| mine.contains_key(&event.seq)) {
        let how = (milliseconds(event.delay), event.error.as_deref().map(storable_error));
        alike.entry(how).or_default().push(event.seq);
        if event.error.is_none() {
            untried.push(event.seq);
        }
    }
    let set = |(ms, error): &(i64, Option<&str>)| {
        let tried = error.map_or_else(String::new, |error| {
            format!(", o.attempts = o.attempts + 1, o.error = {}", text(error))
        });
        format!("o.held_until = UTC_TIMESTAMP(6) + INTERVAL {ms} * 1000 MICROSECOND{tried}")
    };
    update(txn, alike.iter().map(|(how, seqs)| (set(how), seqs))).await?;
    for part in untried.chunks(STATEMENT_NUMBERS) {
        let waits = held_before(txn, part).await?;
        waiting::put_behind(txn, &waits).await?;
    }
    Ok(())
}

/// Those of the held events that are behind another one of their key. If that one is going at this moment, the event keeps its
/// time.
async fn held_before(conn: &mut MySqlConnection, seqs: &[i64]) -> sqlx::Result<Vec<Waits>> {
    let held = waiting::lock_held(conn, seqs).await?;
    let firsts = waiting::firsts(conn, held.values().cloned().collect()).await?;
    let behind = |(seq, key): (&i64, &HeldKey)| {
        let first = firsts.get(key)?.seq;
        (first < *seq).then_some(Waits { seq: *seq, first })
    };
    Ok(held.iter().filter_map(behind).collect())
}

/// Runs an update for each, by the number of its events, in as few messages as they fit into.
async fn update<'e>(
    txn: &mut MysqlTxn,
    updates: impl Iterator<Item = (String, &'e Vec<i64>)>,
) -> sqlx::Result<()> {
    let mut message = String::new();
    for (set, seqs) in updates {
        for part in seqs.chunks(STATEMENT_NUMBERS) {
            if !message.is_empty() {
                message.push_str("; ");
            }
            message.push_str(&format!("UPDATE {} SET {set}", events_by_seq(part)));
            if message.len() > MESSAGE_BYTES {
                change(txn, std::mem::take(&mut message)).await?;
            }
        }
    }
    if !message.is_empty() {
        change(txn, message).await?;
    }
    Ok(())
}
