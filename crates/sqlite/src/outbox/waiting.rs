//! Held events, and those that wait behind them.
//!
//! A held event holds back the later events of its topic and key. Only the first held event of a key has a time; the others
//! wait for it, however long ([`BEHIND`]). Those that are found waiting leave the index of ready events, so that the other
//! keys are found without stepping over them. When the first one is gone, the next one gets its time: now.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use oncebox_core::store::StoreResult;
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::json;
use super::read::{is_held, oldest_ready};
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::now;

/// The `held_until` of an event that waits behind another. SQLite has no later time.
macro_rules! behind {
    () => {
        "'9999-12-31T23:59:59.999Z'"
    };
}

/// Held events of the topic and key of `o`.
macro_rules! held_like_o {
    () => {
        "oncebox_outbox h INDEXED BY oncebox_outbox_held
         WHERE h.topic = o.topic AND CAST(h.key AS BLOB) = CAST(o.key AS BLOB) AND h.published_at IS NULL
            AND h.parked_at IS NULL AND h.held_until IS NOT NULL"
    };
}
pub(super) use {behind, held_like_o};

const FIRST_OF_KEY: &str = concat!(
    "SELECT seq, held_until <= ?3 OR held_until = ",
    behind!(),
    " FROM oncebox_outbox INDEXED BY oncebox_outbox_held WHERE topic = ?1 AND CAST(key AS BLOB) = ?2 AND ",
    is_held!(),
    " ORDER BY seq LIMIT 1"
);

const HELD_OF_KEY: &str = concat!(
    "SELECT seq FROM oncebox_outbox INDEXED BY oncebox_outbox_held
     WHERE topic = ?1 AND CAST(key AS BLOB) = ?2 AND ",
    is_held!(),
    " ORDER BY seq LIMIT ?3"
);

// Only if the one in front is still held: another process may have published it meanwhile.
const WAIT: &str = concat!(
    "UPDATE oncebox_outbox AS o SET held_until = ",
    behind!(),
    " WHERE o.seq IN (SELECT value FROM json_each(?1)) AND o.published_at IS NULL AND o.parked_at IS NULL
        AND EXISTS (SELECT 1 FROM ",
    held_like_o!(),
    " AND h.seq < o.seq)"
);

const PARK_UNREADABLE: &str = concat!(
    "UPDATE oncebox_outbox SET parked_at = ",
    now!(),
    ", held_until = NULL,
        error = 'the headers are neither an object of texts nor an array of [name, text]: correct them and retry the event'
     WHERE seq IN (SELECT value FROM json_each(?1)) AND published_at IS NULL AND parked_at IS NULL"
);

// Nothing is held, most of the time; then no event is looked at.
const KEYS_WITH_WAITING: &str = concat!(
    "SELECT json_group_array(json_array(topic, hex(key))) FROM (
        SELECT DISTINCT o.topic, CAST(o.key AS BLOB) AS key
        FROM json_each(CASE WHEN EXISTS (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_due WHERE ",
    is_held!(),
    ") THEN ?1 ELSE '[]' END) s CROSS JOIN oncebox_outbox o ON o.seq = s.value
        WHERE EXISTS (SELECT 1 FROM ",
    held_like_o!(),
    " AND h.held_until = ",
    behind!(),
    "))"
);

const FOLLOW: &str = concat!(
    "UPDATE oncebox_outbox SET held_until = ",
    now!(),
    " WHERE held_until = ",
    behind!(),
    " AND seq IN (SELECT (
        SELECT h.seq FROM oncebox_outbox h INDEXED BY oncebox_outbox_held
        WHERE h.topic = k.value->>0 AND CAST(h.key AS BLOB) = unhex(k.value->>1) AND h.published_at IS NULL
            AND h.parked_at IS NULL AND h.held_until IS NOT NULL
        ORDER BY h.seq LIMIT 1) FROM json_each(?1) k)"
);

/// What has to leave the ready events.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// They wait behind a held event.
    waiting: Vec<i64>,
    /// Their headers cannot be read. They are parked: nobody could publish them, and nothing should wait for them.
    pub(super) unreadable: Vec<i64>,
}

impl Aside {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.unreadable.is_empty()
    }
}

/// The held events of a key, from the first on as many as fit. If the first is not due there are none to publish.
struct HeldKey {
    first: i64,
    open: Vec<i64>,
    /// There may be more than fitted.
    cut: bool,
}

impl HeldKey {
    /// Whether this event of the key can go now: before all held ones, or among those that go.
    fn lets_pass(&self, seq: i64) -> bool {
        match self.open.last() {
            _ if seq < self.first => true,
            Some(last) => !self.cut || seq < *last,
            None => false,
        }
    }
}

/// An event that may be next, and its key if that has held events.
struct Candidate {
    seq: i64,
    key: Option<Vec<u8>>,
}

/// Chooses events of a topic of which some are held, as JSON; those that have to wait go aside.
pub(super) async fn choose(
    conn: &mut SqliteConnection,
    topic: &str,
    shards: &[u16],
    limit: i64,
    aside: &mut Aside,
) -> sqlx::Result<String> {
    let now: String = sqlx::query(concat!("SELECT ", now!())).fetch_one(&mut *conn).await?.try_get(0)?;
    let ready = candidates(conn, ready_text(shards.len()), topic, shards, limit, None).await?;
    let due = candidates(conn, due_text(shards.len()), topic, shards, limit, Some(&now)).await?;

    let mut keys: BTreeMap<&[u8], HeldKey> = BTreeMap::new();
    for key in ready.iter().chain(&due).filter_map(|candidate| candidate.key.as_deref()) {
        if let Entry::Vacant(vacant) = keys.entry(key) {
            vacant.insert(held_of_key(conn, topic, key, &now, limit).await?);
        }
    }

    let mut chosen: BTreeSet<i64> = keys.values().flat_map(|held| held.open.iter().copied()).collect();
    for Candidate { seq, key } in &ready {
        let held = key.as_deref().and_then(|key| keys.get(key));
        if held.is_none_or(|held| held.lets_pass(*seq)) {
            chosen.insert(*seq);
        } else {
            aside.waiting.push(*seq);
        }
    }
    chosen.extend(due.iter().filter(|candidate| candidate.key.is_none()).map(|candidate| candidate.seq));

    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // Beyond the last ready event that was looked at there may be one that comes first for its key.
    let seen_up_to = ready.last().filter(|_| ready.len() >= limit).map_or(i64::MAX, |last| last.seq);
    Ok(json(chosen.into_iter().take_while(|seq| *seq <= seen_up_to).take(limit)))
}

async fn candidates(
    conn: &mut SqliteConnection,
    sql: String,
    topic: &str,
    shards: &[u16],
    limit: i64,
    now: Option<&str>,
) -> sqlx::Result<Vec<Candidate>> {
    let mut query = sqlx::query(AssertSqlSafe(sql)).bind(topic).bind(limit);
    for shard in shards {
        query = query.bind(shard);
    }
    if let Some(now) = now {
        query = query.bind(now);
    }
    let rows = query.fetch_all(conn).await?;
    rows.iter().map(|row| Ok(Candidate { seq: row.try_get(0)?, key: row.try_get(1)? })).collect()
}

fn ready_text(shards: usize) -> String {
    format!(
        "SELECT o.seq, CASE WHEN EXISTS (SELECT 1 FROM {}) THEN CAST(o.key AS BLOB) END
         FROM ({}) n CROSS JOIN oncebox_outbox o ON o.seq = n.seq ORDER BY o.seq",
        held_like_o!(),
        oldest_ready(shards)
    )
}

/// The events whose time has come, the earliest first.
fn due_text(shards: usize) -> String {
    let now = shards + 3;
    let part = |at: usize| {
        let shard = at + 3;
        format!(
            "SELECT held_until, seq FROM oncebox_outbox INDEXED BY oncebox_outbox_due
             WHERE topic = ?1 AND shard = ?{shard} AND held_until <= ?{now} AND {}",
            is_held!()
        )
    };
    let parts: Vec<String> = (0..shards).map(part).collect();
    format!(
        "SELECT o.seq, CAST(o.key AS BLOB) FROM ({} ORDER BY held_until, seq LIMIT ?2) n
         CROSS JOIN oncebox_outbox o ON o.seq = n.seq",
        parts.join(" UNION ALL ")
    )
}

async fn held_of_key(
    conn: &mut SqliteConnection,
    topic: &str,
    key: &[u8],
    now: &str,
    limit: i64,
) -> sqlx::Result<HeldKey> {
    let first = sqlx::query(FIRST_OF_KEY).bind(topic).bind(key).bind(now).fetch_one(&mut *conn).await?;
    let (first, is_open) = (first.try_get(0)?, first.try_get(1)?);
    let mut open = Vec::new();
    if is_open {
        let held = sqlx::query(HELD_OF_KEY).bind(topic).bind(key).bind(limit).fetch_all(conn).await?;
        open = held.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?;
    }
    let cut = open.len() as i64 >= limit;
    Ok(HeldKey { first, open, cut })
}

/// Takes events out of the way.
pub(super) async fn put_aside(store: &SqliteStore, aside: &Aside) -> StoreResult<()> {
    let doing = "putting events aside that cannot be published now";
    let mut txn = store.begin().await?;
    wait(&mut txn, &json(aside.waiting.iter().copied())).await.context(doing)?;
    let unreadable = json(aside.unreadable.iter().copied());
    let keys = keys_with_waiting(&mut txn, &unreadable).await.context(doing)?;
    sqlx::query(PARK_UNREADABLE).bind(unreadable).execute(&mut *txn).await.context(doing)?;
    follow(&mut txn, &keys).await.context(doing)?;
    txn.commit_own(doing).await?;
    for seq in &aside.unreadable {
        tracing::warn!(seq, "parked an event that cannot be published: its headers are unreadable");
    }
    Ok(())
}

/// Lets those of the events wait that are behind a held one.
pub(super) async fn wait(conn: &mut SqliteConnection, seqs: &str) -> sqlx::Result<()> {
    sqlx::query(WAIT).bind(seqs).execute(conn).await.map(|_| ())
}

/// The topics and keys of these events that others wait for. To be asked before the events go; then [`follow`].
pub(super) async fn keys_with_waiting(conn: &mut SqliteConnection, seqs: &str) -> sqlx::Result<String> {
    sqlx::query(KEYS_WITH_WAITING).bind(seqs).fetch_one(conn).await?.try_get(0)
}

/// The first of those that wait goes on, if it waits for nobody any more.
pub(super) async fn follow(conn: &mut SqliteConnection, keys: &str) -> sqlx::Result<()> {
    if keys != "[]" {
        sqlx::query(FOLLOW).bind(keys).execute(conn).await?;
    }
    Ok(())
}
