//! Held events, and those that wait behind them.
//!
//! A held event holds back the later events of its topic and key. The first held event of a key has a time, and so has one
//! that failed on its own; the others wait for it, however long ([`behind!`]). Those that are found waiting leave the ready
//! events, so that a million of them cannot stand before the others. When the first one is gone, the next one gets its time: now.

use std::collections::{BTreeMap, HashMap};
use std::iter;

use oncebox_core::store::StoreResult;
use sqlx::{MySqlConnection, Row};

use super::read::{CANDIDATE, Candidate, Wanted, candidate, oldest_ready};
use super::{LOCKED, STATEMENT_NUMBERS, STATEMENT_PARTS, change, events_by_seq, fetch};
use crate::classify::Context;
use crate::quote::{push_bytes, text};
use crate::txn::MysqlTxn;

/// The `held_until` of an event that waits behind another. There is no later time.
macro_rules! behind {
    () => {
        "TIMESTAMP'9999-12-31 23:59:59.999999'"
    };
}
pub(super) use behind;

/// How many events of a shard are looked at in the later steps, and how many steps are made before the caller is told that
/// there is nothing for now.
const STEP_EVENTS: usize = 4000;
const MAX_STEPS: usize = 8;

/// The topic and the key of an event, as `held_key` has them.
pub(super) type HeldKey = Vec<u8>;

/// Chooses events of a topic of which some are held. Those that have to wait leave the ready ones.
pub(super) async fn around_held(txn: &mut MysqlTxn, wanted: &mut Wanted<'_>) -> StoreResult<Vec<Candidate>> {
    let doing = "reading events around held ones";
    let enough = wanted.events.div_ceil(2);
    // First as if most events could go; then all of the batch from one shard; then past many that wait.
    let shares =
        [wanted.share, wanted.events].into_iter().chain(iter::repeat(STEP_EVENTS.max(wanted.events)));
    let mut chosen = Vec::new();
    for share in shares.take(MAX_STEPS) {
        wanted.share = share;
        let waits;
        (chosen, waits) = choose(txn, wanted).await.context(doing)?;
        let put_behind = put_behind(txn, &waits).await.context(doing)?;
        let some_wait = share < wanted.events || (chosen.is_empty() && put_behind > 0);
        if chosen.len() >= enough || !some_wait {
            break;
        }
    }
    Ok(chosen)
}

/// An event that must wait, and the held one that it waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    pub(super) seq: i64,
    pub(super) first: i64,
}

/// A ready or a due event, and its key.
struct Found {
    event: Candidate,
    key: Option<HeldKey>,
}

/// Ready events that wait for nothing; held ones that are due; and what waits behind those. Of each key they are the first
/// ones: where a shard's share of ready events is used up, nothing beyond it is taken.
async fn choose(
    conn: &mut MySqlConnection,
    wanted: &Wanted<'_>,
) -> sqlx::Result<(Vec<Candidate>, Vec<Waits>)> {
    let columns = format!("{CANDIDATE}, UNHEX(SHA2(CONCAT(CAST(topic AS BINARY), 0x00, `key`), 256))");
    let ready = found(conn, oldest_ready(wanted, &columns)).await?;
    let due = found(conn, oldest_due(wanted, &columns)).await?;
    let keys = ready.iter().chain(&due).filter_map(|found| found.key.clone());
    let firsts = firsts(conn, keys.collect()).await?;
    let keys = keys_of(conn, &firsts, wanted.events).await?;

    let mut chosen: BTreeMap<i64, Candidate> = BTreeMap::new();
    let mut waits = Vec::new();
    let going = keys.values().flat_map(|key| match key {
        Key::Goes { events, .. } => events.as_slice(),
        Key::Waits | Key::Later => &[],
    });
    chosen.extend(going.map(|event| (event.seq, *event)));
    for Found { event, key } in &ready {
        let first = key.as_ref().and_then(|key| firsts.get(key)).map(|first| first.seq);
        let Some(first) = first.filter(|first| *first < event.seq) else {
            chosen.insert(event.seq, *event);
            continue;
        };
        match keys.get(&first) {
            Some(Key::Waits) => waits.push(Waits { seq: event.seq, first }),
            Some(Key::Goes { before, .. }) if *before <= event.seq => {
                waits.push(Waits { seq: event.seq, first });
            }
            Some(Key::Goes { .. }) => {
                chosen.insert(event.seq, *event);
            }
            Some(Key::Later) | None => {}
        }
    }
    for Found { event, key } in &due {
        let Some(key) = key else {
            chosen.insert(event.seq, *event);
            continue;
        };
        // It has a time of its own although it is not the first.
        let first = firsts.get(key).map(|first| first.seq).filter(|first| *first < event.seq);
        waits.extend(
            first
                .filter(|first| matches!(keys.get(first), Some(Key::Waits)))
                .map(|first| Waits { seq: event.seq, first }),
        );
    }

    let looked_at = looked_at(&ready, wanted.share);
    chosen.retain(|seq, event| looked_at.get(&event.shard).is_none_or(|last| seq <= last));
    Ok((chosen.into_values().take(wanted.events).collect(), waits))
}

/// The last ready event of each shard whose share is used up: beyond it there may be one that comes first for its key.
fn looked_at(ready: &[Found], share: usize) -> HashMap<u16, i64> {
    let mut seen: HashMap<u16, (usize, i64)> = HashMap::new();
    for Found { event, .. } in ready {
        let (count, last) = seen.entry(event.shard).or_insert((0, event.seq));
        *count += 1;
        *last = event.seq.max(*last);
    }
    seen.into_iter()
        .filter(|(_, (count, _))| *count >= share)
        .map(|(shard, (_, last))| (shard, last))
        .collect()
}

/// The held events of each shard whose time has come, the earliest first.
fn oldest_due(wanted: &Wanted<'_>, columns: &str) -> String {
    let topic = text(wanted.topic);
    let part = |shard: &u16| {
        format!(
            "(SELECT {columns} FROM oncebox_outbox FORCE INDEX (oncebox_outbox_due) \
             WHERE held_shard = {shard} AND topic = {topic} AND held_until <= UTC_TIMESTAMP(6) \
             ORDER BY held_until LIMIT {})",
            wanted.share
        )
    };
    wanted.shards.iter().map(part).collect::<Vec<_>>().join(" UNION ALL ")
}

async fn found(conn: &mut MySqlConnection, sql: String) -> sqlx::Result<Vec<Found>> {
    let rows = fetch(conn, sql).await?;
    rows.iter().map(|row| Ok(Found { event: candidate(row)?, key: row.try_get(3)? })).collect()
}

/// The first held event of a key, and whether it may go. One that waits behind nobody may: what it waited for was taken away
/// by hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct First {
    pub(super) seq: i64,
    is_due: bool,
    waits: bool,
}

/// Of those keys that have held events. Each is looked up by itself: so the server goes to the first row of each along the index,
/// however many there are.
pub(super) async fn firsts(
    conn: &mut MySqlConnection,
    mut keys: Vec<HeldKey>,
) -> sqlx::Result<HashMap<HeldKey, First>> {
    keys.sort_unstable();
    keys.dedup();
    let mut firsts = HashMap::new();
    for part in keys.chunks(STATEMENT_PARTS) {
        let parts: Vec<String> = part.iter().map(|key| first_of_key(key)).collect();
        for row in fetch(conn, parts.join(" UNION ALL ")).await? {
            let waits = row.try_get::<i64, _>(3)? != 0;
            let is_due = waits || row.try_get::<i64, _>(2)? != 0;
            firsts.insert(row.try_get(0)?, First { seq: row.try_get(1)?, is_due, waits });
        }
    }
    Ok(firsts)
}

fn first_of_key(key: &[u8]) -> String {
    let mut hash = String::new();
    push_bytes(&mut hash, key);
    format!(
        concat!(
            "(SELECT held_key, seq, held_until <= UTC_TIMESTAMP(6), held_until = ",
            behind!(),
            " FROM oncebox_outbox FORCE INDEX (oncebox_outbox_held) WHERE held_key = {} ORDER BY seq LIMIT 1)"
        ),
        hash
    )
}

/// What becomes of the events of a key with held ones.
enum Key {
    /// The first held event is not due.
    Waits,
    /// It is due: these held events go, and ready ones that come before the number.
    Goes { events: Vec<Candidate>, before: i64 },
    /// It is due, but this batch has enough.
    Later,
}

/// By the number of the first held event.
async fn keys_of(
    conn: &mut MySqlConnection,
    firsts: &HashMap<HeldKey, First>,
    events: usize,
) -> sqlx::Result<HashMap<i64, Key>> {
    let (mut keys, mut due) = (HashMap::new(), BTreeMap::new());
    for (key, first) in firsts {
        if first.is_due {
            due.insert(first.seq, key);
        } else {
            keys.insert(first.seq, Key::Waits);
        }
    }
    let most = (events / due.len().clamp(1, STATEMENT_PARTS)).max(1);
    keys.extend(due.keys().skip(STATEMENT_PARTS).map(|first| (*first, Key::Later)));
    let parts: Vec<String> =
        due.iter().take(STATEMENT_PARTS).map(|(first, key)| held_of_key(*first, key, most)).collect();
    if parts.is_empty() {
        return Ok(keys);
    }
    for row in fetch(conn, parts.join(" UNION ALL ")).await? {
        let (event, first): (Candidate, i64) = (candidate(&row)?, row.try_get(3)?);
        let key = keys.entry(first).or_insert(Key::Goes { events: Vec::new(), before: i64::MAX });
        let Key::Goes { events, before } = key else { continue };
        if event.seq >= *before {
            continue;
        }
        // Behind one that failed on its own and is not due nothing goes.
        if event.seq != first && row.try_get::<i64, _>(4)? != 0 {
            *before = event.seq;
            continue;
        }
        events.push(event);
        if events.len() >= most {
            *before = event.seq;
        }
    }
    Ok(keys)
}

fn held_of_key(first: i64, key: &[u8], most: usize) -> String {
    let mut hash = String::new();
    push_bytes(&mut hash, key);
    format!(
        concat!(
            "(SELECT seq, bytes, shard, {}, held_until > UTC_TIMESTAMP(6) AND held_until < ",
            behind!(),
            " FROM oncebox_outbox FORCE INDEX (oncebox_outbox_held) WHERE held_key = {} ORDER BY seq LIMIT {})"
        ),
        first, hash, most
    )
}

/// Lets events wait. They and those that they wait for are locked: who takes one of those away at this moment has to wait, and
/// then finds the events behind it. Returns how many wait now.
pub(super) async fn put_behind(conn: &mut MySqlConnection, waits: &[Waits]) -> sqlx::Result<u64> {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable_by_key(|waits| waits.seq);
    let mut changed = 0;
    for part in sorted.chunks(STATEMENT_NUMBERS / 2) {
        let mut seqs: Vec<i64> = part.iter().flat_map(|waits| [waits.seq, waits.first]).collect();
        seqs.sort_unstable();
        seqs.dedup();
        let held = lock_held(conn, &seqs).await?;
        let behind = part.iter().filter(|waits| held.contains_key(&waits.first));
        changed += wait(conn, &behind.map(|waits| waits.seq).collect::<Vec<_>>()).await?;
    }
    Ok(changed)
}

/// Events that are behind a held one, which must be locked, have no time of their own.
async fn wait(conn: &mut MySqlConnection, seqs: &[i64]) -> sqlx::Result<u64> {
    let mut changed = 0;
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let sql = format!(
            concat!(
                "UPDATE {} SET o.held_until = ",
                behind!(),
                " WHERE o.published_at IS NULL AND o.parked_at IS NULL"
            ),
            events_by_seq(part)
        );
        changed += change(conn, sql).await?;
    }
    Ok(changed)
}

/// Locks events; returns the keys of those that are held. Others may wait for them: after they are gone, [`follow`].
pub(super) async fn lock_held(
    conn: &mut MySqlConnection,
    seqs: &[i64],
) -> sqlx::Result<BTreeMap<i64, HeldKey>> {
    let mut keys = BTreeMap::new();
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let sql = format!("SELECT o.seq, o.held_key FROM {} {LOCKED}", events_by_seq(part));
        for row in fetch(conn, sql).await? {
            if let Some(key) = row.try_get::<Option<HeldKey>, _>(1)? {
                keys.insert(row.try_get(0)?, key);
            }
        }
    }
    Ok(keys)
}

/// The first of those that wait goes on, if it waits for nobody any more. If that one is just going too, it is waited for, and
/// the one behind it comes instead.
pub(super) async fn follow(conn: &mut MySqlConnection, keys: Vec<HeldKey>) -> sqlx::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    for _ in 0..MAX_STEPS {
        let firsts = firsts(conn, keys.clone()).await?;
        let waiting: Vec<i64> = firsts.values().filter(|first| first.waits).map(|first| first.seq).collect();
        if make_due(conn, &waiting).await? == waiting.len() as u64 {
            break;
        }
    }
    Ok(())
}

/// Lets events go on that wait behind nobody. Returns how many of them still waited.
pub(super) async fn make_due(conn: &mut MySqlConnection, seqs: &[i64]) -> sqlx::Result<u64> {
    let mut sorted = seqs.to_vec();
    sorted.sort_unstable();
    let mut freed = 0;
    for part in sorted.chunks(STATEMENT_NUMBERS) {
        let sql = format!(
            concat!("UPDATE {} SET o.held_until = UTC_TIMESTAMP(6) WHERE o.held_until = ", behind!()),
            events_by_seq(part)
        );
        freed += change(conn, sql).await?;
    }
    Ok(freed)
}
