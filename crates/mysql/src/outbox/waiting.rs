//! Held events, and those that wait behind them.
//!
//! A held event holds back the later events of its topic and key. Only the first held event of a key has a time; the others
//! wait for it, however long ([`behind!`]). Those that are found waiting leave the ready events, so that a million of them
//! cannot stand before the others. When the first one is gone, the next one gets its time: now.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter;

use oncebox_core::store::StoreResult;
use sqlx::{MySqlConnection, Row};

use super::read::{Candidate, Wanted, candidate, oldest_ready};
use super::{STATEMENT_NUMBERS, STATEMENT_PARTS, change, fetch, list};
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
struct Waits {
    seq: i64,
    first: i64,
}

/// A ready or a due event, and the first held event of its key.
struct Found {
    event: Candidate,
    first: Option<i64>,
}

/// Ready events that wait for nothing; held ones that are due; and what waits behind those. Of each key they are the first
/// ones: where a shard's share of ready events is used up, nothing beyond it is taken.
async fn choose(
    conn: &mut MySqlConnection,
    wanted: &Wanted<'_>,
) -> sqlx::Result<(Vec<Candidate>, Vec<Waits>)> {
    let ready = with_first(conn, &oldest_ready(wanted)).await?;
    let due = with_first(conn, &oldest_due(wanted)).await?;
    let firsts: HashSet<i64> = ready.iter().chain(&due).filter_map(|found| found.first).collect();
    let keys = keys_of(conn, firsts.into_iter().collect(), wanted.events).await?;

    let mut chosen: BTreeMap<i64, Candidate> = BTreeMap::new();
    let mut waits = Vec::new();
    let going = keys.values().flat_map(|key| match key {
        Key::Goes { events, .. } => events.as_slice(),
        Key::Waits | Key::Later => &[],
    });
    chosen.extend(going.map(|event| (event.seq, *event)));
    for Found { event, first } in &ready {
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
            // The first one is gone meanwhile: which one comes next is seen the next time.
            Some(Key::Later) | None => {}
        }
    }
    for Found { event, first } in &due {
        match first.map(|first| (first, keys.get(&first))) {
            None => {
                chosen.insert(event.seq, *event);
            }
            // It has a time of its own although it is not the first.
            Some((first, Some(Key::Waits))) if first < event.seq => {
                waits.push(Waits { seq: event.seq, first });
            }
            Some(_) => {}
        }
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
fn oldest_due(wanted: &Wanted<'_>) -> String {
    let topic = text(wanted.topic);
    let part = |shard: &u16| {
        format!(
            "(SELECT seq, bytes, shard FROM oncebox_outbox FORCE INDEX (oncebox_outbox_due) \
             WHERE held_shard = {shard} AND topic = {topic} AND held_until <= UTC_TIMESTAMP(6) \
             ORDER BY held_until LIMIT {})",
            wanted.share
        )
    };
    wanted.shards.iter().map(part).collect::<Vec<_>>().join(" UNION ALL ")
}

async fn with_first(conn: &mut MySqlConnection, events: &str) -> sqlx::Result<Vec<Found>> {
    let sql = format!(
        "SELECT o.seq, o.bytes, o.shard, (SELECT h.seq FROM oncebox_outbox h FORCE INDEX (oncebox_outbox_held) \
             WHERE h.held_key = UNHEX(SHA2(CONCAT(CAST(o.topic AS BINARY), 0x00, o.`key`), 256)) \
             ORDER BY h.seq LIMIT 1) \
         FROM ({events}) AS n STRAIGHT_JOIN oncebox_outbox o FORCE INDEX (PRIMARY) ON o.seq = n.seq ORDER BY o.seq"
    );
    let rows = fetch(conn, sql).await?;
    rows.iter().map(|row| Ok(Found { event: candidate(row)?, first: row.try_get(3)? })).collect()
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

/// By the number of the first held event. One that waits behind nobody is due: what it waited for was taken away by hand.
async fn keys_of(
    conn: &mut MySqlConnection,
    firsts: Vec<i64>,
    events: usize,
) -> sqlx::Result<HashMap<i64, Key>> {
    let (mut keys, mut due) = (HashMap::new(), BTreeMap::new());
    for part in firsts.chunks(STATEMENT_NUMBERS) {
        let sql = format!(
            concat!(
                "SELECT seq, held_until <= UTC_TIMESTAMP(6) OR held_until = ",
                behind!(),
                ", held_key FROM oncebox_outbox FORCE INDEX (PRIMARY) WHERE seq IN ({}) AND held_key IS NOT NULL"
            ),
            list(part)
        );
        for row in fetch(conn, sql).await? {
            if row.try_get::<i64, _>(1)? == 0 {
                keys.insert(row.try_get(0)?, Key::Waits);
            } else {
                due.insert(row.try_get::<i64, _>(0)?, row.try_get::<HeldKey, _>(2)?);
            }
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
async fn put_behind(conn: &mut MySqlConnection, waits: &[Waits]) -> sqlx::Result<u64> {
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
pub(super) async fn wait(conn: &mut MySqlConnection, seqs: &[i64]) -> sqlx::Result<u64> {
    let mut changed = 0;
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let sql = format!(
            concat!(
                "UPDATE oncebox_outbox FORCE INDEX (PRIMARY) SET held_until = ",
                behind!(),
                " WHERE seq IN ({}) AND published_at IS NULL AND parked_at IS NULL"
            ),
            list(part)
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
        let sql = format!(
            "SELECT seq, held_key FROM oncebox_outbox FORCE INDEX (PRIMARY) WHERE seq IN ({}) ORDER BY seq FOR UPDATE",
            list(part)
        );
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
pub(super) async fn follow(conn: &mut MySqlConnection, mut keys: Vec<HeldKey>) -> sqlx::Result<()> {
    keys.sort_unstable();
    keys.dedup();
    for part in keys.chunks(STATEMENT_PARTS) {
        for _ in 0..MAX_STEPS {
            let parts: Vec<String> = part.iter().map(|key| held_of_key(0, key, 1)).collect();
            let mut waiting = Vec::new();
            for row in fetch(conn, firsts_that_wait(&parts)).await? {
                waiting.push(row.try_get(0)?);
            }
            if waiting.is_empty() || make_due(conn, &waiting).await? == waiting.len() as u64 {
                break;
            }
        }
    }
    Ok(())
}

fn firsts_that_wait(parts: &[String]) -> String {
    format!(
        concat!(
            "SELECT o.seq FROM ({}) AS f STRAIGHT_JOIN oncebox_outbox o FORCE INDEX (PRIMARY) ON o.seq = f.seq \
             WHERE o.held_until = ",
            behind!()
        ),
        parts.join(" UNION ALL ")
    )
}

/// Lets events go on that wait behind nobody.
pub(super) async fn make_due(conn: &mut MySqlConnection, seqs: &[i64]) -> sqlx::Result<u64> {
    let sql = format!(
        concat!(
            "UPDATE oncebox_outbox FORCE INDEX (PRIMARY) SET held_until = UTC_TIMESTAMP(6) \
             WHERE seq IN ({}) AND held_until = ",
            behind!()
        ),
        list(seqs)
    );
    change(conn, sql).await
}
