//! What operators do with events, and what time does to them.

use std::time::{Duration, Instant};

use oncebox_core::outbox::events_committed;
use oncebox_core::store::{CausedEvents, EventFilter, EventState, OutboxEntry, StoreResult};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, QueryBuilder, Row, Sqlite, SqliteConnection};

use super::deliveries::short;
use super::read::is_held;
use super::read::{self, columns};
use super::waiting::{self, behind};
use super::{json, left_behind};
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::{before, millis, now, now_moved};

/// Whether the time of an event has not come.
macro_rules! is_early {
    () => {
        "coalesce(unixepoch(deliver_at, 'subsec') > unixepoch('now', 'subsec'), 0)"
    };
}

const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    ", o.shard, o.consumer, o.tenant, o.error, ",
    millis!("o.published_at"),
    " AS published_at_ms, ",
    millis!("o.parked_at"),
    " AS parked_at_ms, ",
    millis!(concat!("nullif(o.held_until, ", behind!(), ")")),
    " AS held_until_ms, coalesce(o.held_until > ",
    now!(),
    ", 0) AS is_held, ",
    is_early!(),
    " AS is_early FROM oncebox_outbox o"
);

/// Events by filter, ordered by `seq`.
pub(super) async fn events(store: &SqliteStore, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
    let mut query = QueryBuilder::new(LIST);
    push_filter(&mut query, filter);
    let mut conn = store.reader().await?;
    let rows = query.build().persistent(false).fetch_all(&mut *conn).await.context("reading events")?;
    rows.iter().map(entry).collect()
}

const CAUSED: &str = " WHERE o.seq > (SELECT max(seq) FROM oncebox_outbox) - ?2 AND o.causation_id = ?1
    ORDER BY o.seq LIMIT ?3";

const IS_LONGER: &str =
    "SELECT coalesce((SELECT max(seq) FROM oncebox_outbox) - (SELECT min(seq) FROM oncebox_outbox) >= ?1, 0)";

/// How many events of a message are shown.
const MAX_CAUSED: i64 = 1000;

/// The events that a message caused, among the newest.
pub(super) async fn events_caused_by(
    store: &SqliteStore,
    message_id: &str,
    newest: u32,
) -> StoreResult<CausedEvents> {
    let doing = "reading events";
    let mut conn = store.reader().await?;
    let caused =
        sqlx::query(AssertSqlSafe(format!("{LIST}{CAUSED}"))).bind(message_id).bind(newest).bind(MAX_CAUSED);
    let rows = caused.fetch_all(&mut *conn).await.context(doing)?;
    let longer = sqlx::query(IS_LONGER).bind(newest).fetch_one(&mut *conn).await;
    let is_longer: bool = longer.and_then(|row| row.try_get(0)).context(doing)?;
    Ok(CausedEvents {
        events: rows.iter().map(entry).collect::<StoreResult<_>>()?,
        looked_at_all: !is_longer,
    })
}

fn entry(row: &SqliteRow) -> StoreResult<OutboxEntry> {
    let doing = "reading events";
    let event = read::event(row)?.event;
    let (state, state_at_ms) = state(row).context(doing)?;
    Ok(OutboxEntry {
        event,
        shard: row.try_get("shard").context(doing)?,
        consumer: row.try_get("consumer").context(doing)?,
        tenant: row.try_get("tenant").context(doing)?,
        state,
        state_at_ms,
        error: row.try_get("error").context(doing)?,
    })
}

fn state(row: &SqliteRow) -> sqlx::Result<(EventState, Option<i64>)> {
    let published_at: Option<i64> = row.try_get("published_at_ms")?;
    let parked_at: Option<i64> = row.try_get("parked_at_ms")?;
    Ok(match (published_at, parked_at) {
        (Some(at), _) => (EventState::Published, Some(at)),
        (_, Some(at)) => (EventState::Parked, Some(at)),
        _ if row.try_get("is_early")? => (EventState::Delayed, row.try_get("deliver_at_ms")?),
        _ if row.try_get("is_held")? => (EventState::Held, row.try_get("held_until_ms")?),
        _ => (EventState::Pending, None),
    })
}

// The attempts begin anew, so that a sink that gives up after some does not do so at once.
const RETRY: &str = concat!(
    "UPDATE oncebox_outbox SET held_until = NULL, parked_at = NULL, attempts = 0
     WHERE published_at IS NULL AND (parked_at IS NOT NULL OR held_until IS NOT NULL AND NOT ",
    is_early!(),
    ") AND seq IN (SELECT seq FROM oncebox_outbox o"
);

const SEND_NOW: &str = concat!(
    "UPDATE oncebox_outbox SET held_until = NULL, deliver_at = ",
    now!(),
    " WHERE seq IN (SELECT seq FROM oncebox_outbox o"
);

/// Makes parked and held events pending again, or delayed ones if they are asked for. One that waits behind another that is still held goes on waiting.
pub(super) async fn retry_events(store: &SqliteStore, filter: &EventFilter) -> StoreResult<u64> {
    let doing = "retrying events";
    let mut query = QueryBuilder::new(match filter.state {
        Some(EventState::Delayed) => SEND_NOW,
        _ => RETRY,
    });
    push_filter(&mut query, filter);
    query.push(")");
    let mut txn = store.begin().await?;
    let done = query.build().persistent(false).execute(&mut *txn).await.context(doing)?;
    txn.commit_own(doing).await?;
    if done.rows_affected() > 0 {
        events_committed();
    }
    Ok(done.rows_affected())
}

/// Gives up events that wait to be published.
pub(super) async fn park_events(store: &SqliteStore, filter: &EventFilter, reason: &str) -> StoreResult<u64> {
    let doing = "parking events";
    let mut txn = store.begin().await?;
    let parked = park_in(&mut txn, filter, reason).await.context(doing)?;
    txn.commit_own(doing).await?;
    if parked > 0 {
        events_committed();
    }
    Ok(parked)
}

const PARK: &str = concat!(
    "UPDATE oncebox_outbox SET parked_at = ",
    now!(),
    ", held_until = NULL, error = ?2
     WHERE seq IN (SELECT value FROM json_each(?1)) AND published_at IS NULL AND parked_at IS NULL"
);

async fn park_in(conn: &mut SqliteConnection, filter: &EventFilter, reason: &str) -> sqlx::Result<u64> {
    let seqs = found(conn, filter).await?;
    let keys = waiting::keys_with_waiting(conn, &seqs).await?;
    let done = sqlx::query(PARK).bind(seqs).bind(short(reason)).execute(&mut *conn).await?;
    waiting::follow(conn, &keys).await?;
    Ok(done.rows_affected())
}

/// Removes events for good.
pub(super) async fn drop_events(store: &SqliteStore, filter: &EventFilter) -> StoreResult<u64> {
    let doing = "dropping events";
    let mut txn = store.begin().await?;
    let dropped = drop_in(&mut txn, filter).await.context(doing)?;
    txn.commit_own(doing).await?;
    Ok(dropped)
}

const FIND: &str = "SELECT json_group_array(seq) FROM (SELECT seq FROM oncebox_outbox o";

const DROP: &str = "DELETE FROM oncebox_outbox WHERE seq IN (SELECT value FROM json_each(?1))";

/// The numbers of the events that a filter means, as JSON.
async fn found(conn: &mut SqliteConnection, filter: &EventFilter) -> sqlx::Result<String> {
    let mut query = QueryBuilder::new(FIND);
    push_filter(&mut query, filter);
    query.push(")");
    query.build().persistent(false).fetch_one(&mut *conn).await?.try_get(0)
}

async fn drop_in(conn: &mut SqliteConnection, filter: &EventFilter) -> sqlx::Result<u64> {
    let seqs = found(conn, filter).await?;
    let keys = waiting::keys_with_waiting(conn, &seqs).await?;
    let done = sqlx::query(DROP).bind(seqs).execute(&mut *conn).await?;
    waiting::follow(conn, &keys).await?;
    Ok(done.rows_affected())
}

/// The conditions that are asked for and no others. Parked events are found by their index; else the next page is just the
/// next rows, and the `+` keeps SQLite from an index that it would have to sort.
fn push_filter(query: &mut QueryBuilder<Sqlite>, filter: &EventFilter) {
    query.push(" WHERE seq > ").push_bind(filter.after);
    if let Some(until) = filter.until {
        query.push(" AND seq <= ").push_bind(until);
    }
    if !filter.seqs.is_empty() {
        query.push(" AND seq IN (SELECT value FROM json_each(");
        query.push_bind(json(filter.seqs.iter().copied())).push("))");
    }
    if let Some(id) = filter.id {
        query.push(" AND id = ").push_bind(id.to_string());
    }
    if let Some(topic) = &filter.topic {
        query.push(" AND +topic = ").push_bind(topic.clone());
    }
    if let Some(key) = &filter.key {
        query.push(" AND CAST(key AS BLOB) = ").push_bind(key.clone());
    }
    let state = match filter.state {
        None => "",
        Some(EventState::Pending) => concat!(
            " AND published_at IS NULL AND parked_at IS NULL AND (held_until IS NULL OR held_until <= ",
            now!(),
            ") AND NOT ",
            is_early!()
        ),
        Some(EventState::Delayed) => {
            concat!(" AND published_at IS NULL AND parked_at IS NULL AND ", is_early!())
        }
        Some(EventState::Held) => {
            concat!(" AND ", is_held!(), " AND held_until > ", now!(), " AND NOT ", is_early!())
        }
        Some(EventState::Parked) => " AND parked_at IS NOT NULL AND published_at IS NULL",
        Some(EventState::Published) => " AND published_at IS NOT NULL",
    };
    query.push(state).push(" ORDER BY seq LIMIT ").push_bind(filter.limit);
}

/// Rows that one step removes. A step holds the write lock for a few milliseconds.
const STEP_ROWS: i64 = 1000;

/// After a step, the pass rests this many times as long as the step took: the writer is there for the handlers.
const REST_FACTOR: u32 = 4;

/// How long a relay is remembered that was not heard of.
const RELAY_MEMORY: Duration = Duration::from_secs(86_400);

const PURGE: &str = concat!(
    "DELETE FROM oncebox_outbox WHERE seq IN (
        SELECT seq FROM oncebox_outbox INDEXED BY oncebox_outbox_published
        WHERE published_at IS NOT NULL AND published_at <= ",
    now_moved!("?1"),
    " ORDER BY published_at LIMIT ?2)"
);

const PURGE_SWEEPS: &str = concat!(
    "DELETE FROM oncebox_sweep WHERE (name, row_key) IN (
        SELECT name, row_key FROM oncebox_sweep WHERE silent_until <= ",
    now!(),
    " LIMIT ?2)"
);

const PURGE_RELAYS: &str = concat!("DELETE FROM oncebox_relay WHERE seen_until <= ", now_moved!("?1"));

/// Removes what was published long enough ago; forgets relays that are gone and rows of sweeps whose window is over.
pub(super) async fn purge_published(store: &SqliteStore, keep: Duration) -> StoreResult<u64> {
    let purged = in_steps(store, PURGE, &before(keep)).await?;
    in_steps(store, PURGE_SWEEPS, "").await?;
    step(store, PURGE_RELAYS, &before(RELAY_MEMORY)).await?;
    left_behind::free_left_behind(store).await?;
    Ok(purged)
}

async fn in_steps(store: &SqliteStore, sql: &'static str, moved: &str) -> StoreResult<u64> {
    let mut removed = 0;
    loop {
        let started = Instant::now();
        let step = step(store, sql, moved).await?;
        removed += step;
        if step < STEP_ROWS.unsigned_abs() {
            return Ok(removed);
        }
        tokio::time::sleep(started.elapsed() * REST_FACTOR).await;
    }
}

async fn step(store: &SqliteStore, sql: &'static str, moved: &str) -> StoreResult<u64> {
    let doing = "purging published events";
    let mut txn = store.begin().await?;
    let done = sqlx::query(sql).bind(moved).bind(STEP_ROWS).execute(&mut *txn).await.context(doing)?;
    txn.commit_own(doing).await?;
    Ok(done.rows_affected())
}
