//! What is to be published next.
//!
//! Everything here reads in one snapshot of a reading connection. Only when something must be put aside (events that wait
//! behind a held one, events that nobody can read) the writer is asked.

use bytes::Bytes;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::message::Headers;
use oncebox_core::store::{ErrorClass, Ready, StoreError, StoreResult, StoredEvent, headers_json};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use super::json;
use super::waiting::{self, Aside};
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::{millis, now};

/// The columns that [`event`] wants, of the outbox under the name `o`.
macro_rules! columns {
    () => {
        concat!(
            "o.seq, o.id, o.topic, o.key, o.payload, o.headers, o.causation_id, o.attempts, ",
            $crate::time::millis!("o.created_at"),
            " AS created_at_ms, ",
            $crate::time::millis!("o.deliver_at"),
            " AS deliver_at_ms"
        )
    };
}
pub(super) use columns;

const LOOKING: &str = "looking for events to publish";

/// How often one call puts events aside before it gives up for now; what is left is ready and comes with the next call.
const MAX_ROUNDS: usize = 8;

/// The conditions of the index `oncebox_outbox_ready`.
macro_rules! is_ready {
    () => {
        "published_at IS NULL AND parked_at IS NULL AND held_until IS NULL"
    };
}

/// The conditions of the indexes `oncebox_outbox_due` and `oncebox_outbox_held`.
macro_rules! is_held {
    () => {
        "published_at IS NULL AND parked_at IS NULL AND held_until IS NOT NULL"
    };
}

/// From one topic to the next along an index, instead of over all events; so many, from a topic on.
macro_rules! topics {
    ($index:literal, $condition:expr) => {
        topics!($index, $condition, "''", "4096")
    };
    ($index:literal, $condition:expr, $from:literal, $most:literal) => {
        concat!(
            "SELECT (SELECT topic FROM oncebox_outbox INDEXED BY ",
            $index,
            " WHERE ",
            $condition,
            " AND topic >= ",
            $from,
            " ORDER BY topic LIMIT 1) AS topic
             UNION ALL
             SELECT (SELECT o.topic FROM oncebox_outbox o INDEXED BY ",
            $index,
            " WHERE ",
            $condition,
            " AND o.topic > t.topic ORDER BY o.topic LIMIT 1)
             FROM t WHERE t.topic IS NOT NULL LIMIT ",
            $most
        )
    };
}

pub(super) use topics;
pub(crate) use {is_held, is_ready};

const READY: &str = concat!(
    "WITH RECURSIVE
     shards AS MATERIALIZED (SELECT value AS shard FROM json_each(?1)),
     ready_topics AS (WITH RECURSIVE t AS (",
    topics!("oncebox_outbox_ready", is_ready!(), "?2", "?3"),
    ") SELECT topic FROM t WHERE topic IS NOT NULL),
     held_topics AS (WITH RECURSIVE t AS (",
    topics!("oncebox_outbox_due", is_held!(), "?2", "?3"),
    ") SELECT topic FROM t WHERE topic IS NOT NULL)
     SELECT t.topic, s.shard FROM ready_topics t CROSS JOIN shards s WHERE EXISTS (
        SELECT 1 FROM oncebox_outbox o INDEXED BY oncebox_outbox_ready
        WHERE o.topic = t.topic AND o.shard = s.shard AND ",
    is_ready!(),
    ") UNION
     SELECT t.topic, s.shard FROM held_topics t CROSS JOIN shards s WHERE EXISTS (
        SELECT 1 FROM oncebox_outbox o INDEXED BY oncebox_outbox_due
        WHERE o.topic = t.topic AND o.shard = s.shard AND o.held_until <= ",
    now!(),
    " AND ",
    is_held!(),
    ") UNION ALL
     SELECT min(topic), NULL FROM (
        SELECT max(topic) AS topic FROM ready_topics HAVING count(*) = ?3
        UNION ALL SELECT max(topic) FROM held_topics HAVING count(*) = ?3)"
);

const ANY_HELD: &str = concat!(
    "SELECT EXISTS (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_due WHERE topic = ?1 AND ",
    is_held!(),
    ")"
);

// `octet_length` knows the size without reading the value. `{}` counts as no bytes.
const FETCH: &str = concat!(
    "WITH chosen(seq) AS MATERIALIZED (SELECT value FROM json_each(?1)),
     sized AS MATERIALIZED (
        SELECT c.seq, sum(coalesce(octet_length(o.key), 0) + coalesce(octet_length(o.payload), 0)
            + octet_length(o.headers) - 2) OVER (ORDER BY c.seq) AS bytes
        FROM chosen c CROSS JOIN oncebox_outbox o ON o.seq = c.seq)
     SELECT ",
    columns!(),
    " FROM sized s CROSS JOIN oncebox_outbox o ON o.seq = s.seq
     WHERE s.bytes <= ?2 OR s.seq = (SELECT min(seq) FROM chosen) ORDER BY s.seq"
);

/// The topics and shards that have something to publish now.
pub(super) async fn ready_from(
    store: &SqliteStore,
    shards: &[u16],
    from: &str,
    topics: u16,
) -> StoreResult<Ready> {
    let mut conn = store.reader().await?;
    // One more, so that the last one is another than the first.
    let most = i64::from(topics) + 1;
    let query = sqlx::query(READY).bind(json(shards.iter().copied())).bind(from).bind(most);
    let mut ready = Ready::default();
    for row in query.fetch_all(&mut *conn).await.context(LOOKING)? {
        match (row.try_get(0).context(LOOKING)?, row.try_get(1).context(LOOKING)?) {
            (Some(topic), Some(shard)) => ready.places.push((topic, shard)),
            (more_from, _) => ready.more_from = more_from,
        }
    }
    Ok(ready)
}

/// The database's clock.
pub(super) async fn clock_ms(store: &SqliteStore) -> StoreResult<i64> {
    let doing = "reading the clock";
    let mut conn = store.reader().await?;
    let row = sqlx::query(concat!("SELECT ", millis!("'now'"))).fetch_one(&mut *conn).await.context(doing)?;
    row.try_get(0).context(doing)
}

/// The next events of a topic.
pub(super) async fn next_events(
    store: &SqliteStore,
    topic: &str,
    shards: &[u16],
    bounds: BatchBounds,
) -> StoreResult<Vec<StoredEvent>> {
    for _ in 0..MAX_ROUNDS {
        let mut conn = store.reader().await?;
        let mut snapshot = conn.begin().await.context(LOOKING)?;
        let (events, aside) = look(&mut snapshot, topic, shards, bounds).await?;
        snapshot.rollback().await.context(LOOKING)?;
        drop(conn);
        if aside.is_empty() {
            return Ok(events);
        }
        waiting::put_aside(store, &aside).await?;
        if !events.is_empty() {
            return Ok(events);
        }
    }
    Ok(Vec::new())
}

async fn look(
    conn: &mut SqliteConnection,
    topic: &str,
    shards: &[u16],
    bounds: BatchBounds,
) -> StoreResult<(Vec<StoredEvent>, Aside)> {
    let mut aside = Aside::default();
    if shards.is_empty() {
        return Ok((Vec::new(), aside));
    }
    let limit = i64::try_from(bounds.messages.max(1)).unwrap_or(i64::MAX);
    let row = sqlx::query(ANY_HELD).bind(topic).fetch_one(&mut *conn).await.context(LOOKING)?;
    let chosen = if row.try_get(0).context(LOOKING)? {
        waiting::choose(conn, topic, shards, limit, &mut aside).await.context(LOOKING)?
    } else {
        first_ready(conn, topic, shards, limit).await.context(LOOKING)?
    };
    let bytes = i64::try_from(bounds.bytes).unwrap_or(i64::MAX);
    let rows = sqlx::query(FETCH).bind(chosen).bind(bytes).fetch_all(conn).await.context(LOOKING)?;
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let read = event(row)?;
        if read.readable {
            events.push(read.event);
        } else {
            aside.unreadable.push(read.event.seq);
        }
    }
    Ok((events, aside))
}

/// The oldest ready events of all shards together, as JSON.
async fn first_ready(
    conn: &mut SqliteConnection,
    topic: &str,
    shards: &[u16],
    limit: i64,
) -> sqlx::Result<String> {
    let sql = format!("SELECT json_group_array(seq) FROM ({})", oldest_ready(shards.len()));
    let mut query = sqlx::query(AssertSqlSafe(sql)).bind(topic).bind(limit);
    for shard in shards {
        query = query.bind(shard);
    }
    query.fetch_one(conn).await?.try_get(0)
}

/// Selects `seq`. Parameters: the topic, the limit, then the shards. SQLite merges the parts as it reads them, so that it
/// reads no more than the limit, however much is ready.
pub(super) fn oldest_ready(shards: usize) -> String {
    let part = |at: usize| {
        let shard = at + 3;
        format!(
            "SELECT seq FROM oncebox_outbox INDEXED BY oncebox_outbox_ready WHERE topic = ?1 AND shard = ?{shard} AND {}",
            is_ready!()
        )
    };
    let parts: Vec<String> = (0..shards).map(part).collect();
    parts.join(" UNION ALL ") + " ORDER BY seq LIMIT ?2"
}

/// An event as it lies there. Not readable if an application wrote headers by hand that cannot be read; then it has none here.
pub(super) struct ReadEvent {
    pub(super) event: StoredEvent,
    pub(super) readable: bool,
}

/// Reads a row of [`columns!`] back.
pub(super) fn event(row: &SqliteRow) -> StoreResult<ReadEvent> {
    let seq: i64 = row.try_get("seq").context("reading an event")?;
    let doing = format!("reading event {seq} of the outbox");
    let id: String = row.try_get("id").context(&doing)?;
    let id = id.parse().map_err(|error| StoreError::new(ErrorClass::Failed, doing.as_str(), error))?;
    read_event(row, seq, id).context(&doing)
}

fn read_event(row: &SqliteRow, seq: i64, id: uuid::Uuid) -> sqlx::Result<ReadEvent> {
    let bytes = |column: &str| row.try_get::<Option<Vec<u8>>, _>(column).map(|bytes| bytes.map(Bytes::from));
    let headers: Option<Headers> = headers_json::from_either(row.try_get("headers")?);
    let readable = headers.is_some();
    let event = StoredEvent {
        seq,
        id,
        topic: row.try_get::<&str, _>("topic")?.into(),
        key: bytes("key")?,
        payload: bytes("payload")?,
        headers: headers.unwrap_or_default(),
        created_at_ms: row.try_get::<Option<i64>, _>("created_at_ms")?.unwrap_or_default(),
        deliver_at_ms: row.try_get("deliver_at_ms")?,
        causation_id: row.try_get("causation_id")?,
        attempts: row.try_get("attempts")?,
    };
    Ok(ReadEvent { event, readable })
}
