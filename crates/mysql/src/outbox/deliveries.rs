//! What became of the deliveries of a batch.

use std::collections::{BTreeMap, HashMap, HashSet};

use oncebox_core::store::{Deliveries, HeldEvent, ParkedEvent, StoreResult};
use sqlx::{MySqlConnection, Row};

use super::waiting::{self, HeldKey};
use super::{STATEMENT_NUMBERS, change, fetch, list, shard};
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
    let (what, only) = if keep {
        (
            "UPDATE oncebox_outbox o FORCE INDEX (PRIMARY) \
             SET o.published_at = UTC_TIMESTAMP(6), o.held_until = NULL, o.parked_at = NULL",
            " AND o.published_at IS NULL",
        )
    } else {
        ("DELETE o FROM oncebox_outbox o FORCE INDEX (PRIMARY)", "")
    };
    format!("{what} WHERE o.seq IN ({}){only}", list(seqs))
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
            "SELECT seq, shard, held_key FROM oncebox_outbox FORCE INDEX (PRIMARY) WHERE seq IN ({}) \
             AND published_at IS NULL AND parked_at IS NULL ORDER BY seq FOR UPDATE",
            list(part)
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
            "parked_at = UTC_TIMESTAMP(6), held_until = NULL, attempts = attempts + 1, error = {}",
            text(error)
        )
    };
    update(txn, alike.iter().map(|(error, seqs)| (set(error), seqs))).await?;
    Ok(keys)
}

/// First all of them get their times; then those that are behind a held one lose it again.
async fn hold(txn: &mut MysqlTxn, held: &[HeldEvent], mine: &HashMap<i64, &Event>) -> sqlx::Result<()> {
    let mut alike: BTreeMap<(i64, Option<&str>), Vec<i64>> = BTreeMap::new();
    for event in held.iter().filter(|event| mine.contains_key(&event.seq)) {
        let how = (milliseconds(event.delay), event.error.as_deref().map(storable_error));
        alike.entry(how).or_default().push(event.seq);
    }
    let set = |(ms, error): &(i64, Option<&str>)| {
        let tried = error
            .map_or_else(String::new, |error| format!(", attempts = attempts + 1, error = {}", text(error)));
        format!("held_until = UTC_TIMESTAMP(6) + INTERVAL {ms} * 1000 MICROSECOND{tried}")
    };
    update(txn, alike.iter().map(|(how, seqs)| (set(how), seqs))).await?;
    let seqs: Vec<i64> = alike.into_values().flatten().collect();
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        wait_in_line(txn, part).await?;
    }
    Ok(())
}

/// The held events around each of these: the first one of its key, and the one behind it.
const AROUND: &str = "SELECT o.seq, (SELECT h.seq FROM oncebox_outbox h FORCE INDEX (oncebox_outbox_held) \
         WHERE h.held_key = o.held_key ORDER BY h.seq LIMIT 1), \
     (SELECT h.seq FROM oncebox_outbox h FORCE INDEX (oncebox_outbox_held) \
         WHERE h.held_key = o.held_key AND h.seq > o.seq ORDER BY h.seq LIMIT 1) \
     FROM oncebox_outbox o FORCE INDEX (PRIMARY) WHERE o.held_key IS NOT NULL AND o.seq IN ";

/// Of the held events of a key only the first has a time. If that one is going at this moment, it is waited for; then the
/// event keeps its time.
async fn wait_in_line(conn: &mut MySqlConnection, seqs: &[i64]) -> sqlx::Result<()> {
    let (mut behind, mut firsts) = (HashSet::new(), HashMap::new());
    for row in fetch(conn, format!("{AROUND}({})", list(seqs))).await? {
        let seq: i64 = row.try_get(0)?;
        let first: Option<i64> = row.try_get(1)?;
        if let Some(first) = first.filter(|first| *first < seq) {
            firsts.insert(seq, first);
        }
        behind.extend(row.try_get::<Option<i64>, _>(2)?);
    }
    let mut locks: Vec<i64> = firsts.values().copied().collect();
    locks.sort_unstable();
    locks.dedup();
    let held = waiting::lock_held(conn, &locks).await?;
    behind.extend(firsts.iter().filter(|(_, first)| held.contains_key(first)).map(|(seq, _)| *seq));
    let behind: Vec<i64> = behind.into_iter().collect();
    waiting::wait(conn, &behind).await?;
    Ok(())
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
            message.push_str(&format!(
                "UPDATE oncebox_outbox FORCE INDEX (PRIMARY) SET {set} WHERE seq IN ({})",
                list(part)
            ));
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
