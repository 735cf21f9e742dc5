//! Events by filter, and what operators do with them.

use std::time::Duration;

use oncebox_core::outbox::events_committed;
use oncebox_core::store::{CausedEvents, EventFilter, EventState, OutboxEntry, StoreResult};
use sqlx::Row;

use super::left_behind::free_left_behind;
use super::read::{self, event_columns};
use crate::classify::Context;
use crate::dead::storable_error;
use crate::store::{PgStore, Query};
use crate::time::milliseconds;

macro_rules! state {
    () => {
        "CASE WHEN o.published_at IS NOT NULL THEN 'published' WHEN o.parked_at IS NOT NULL THEN 'parked' \
             WHEN o.deliver_at > statement_timestamp() THEN 'delayed' \
             WHEN u.until > statement_timestamp() THEN 'held' ELSE 'pending' END"
    };
}

/// An event that waits behind another is held until that one is due. The state is asked for in two ways: the second says it
/// so that an index can answer.
macro_rules! with_holds {
    () => {
        "FROM oncebox_outbox o CROSS JOIN LATERAL (SELECT CASE o.held_until WHEN 'infinity' THEN ( \
                 SELECT h.held_until FROM oncebox_outbox h WHERE h.topic = o.topic AND sha256(h.key) = sha256(o.key) \
                     AND h.key = o.key AND h.held_until IS NOT NULL ORDER BY h.seq LIMIT 1) \
                 ELSE o.held_until END AS until) AS u "
    };
}

macro_rules! matching {
    () => {
        concat!(
            with_holds!(),
            "WHERE (cardinality($1::bigint[]) = 0 OR o.seq = ANY ($1)) \
                 AND ($2::uuid IS NULL OR o.id = $2) AND ($3::text IS NULL OR ",
            state!(),
            " = $3) AND ($3 <> 'parked' OR $3 IS NULL OR o.parked_at IS NOT NULL) \
                 AND ($4::text IS NULL OR o.topic = $4) AND ($5::bytea IS NULL OR o.key = $5) \
                 AND o.seq > ($6::bigint[])[1] AND o.seq <= ($6)[2] "
        )
    };
}

macro_rules! entry_columns {
    () => {
        concat!(
            event_columns!(),
            ", o.topic, o.consumer, o.tenant, o.error, ",
            state!(),
            " AS state, (date_part('epoch', COALESCE(o.published_at, o.parked_at, \
                 CASE WHEN o.deliver_at > statement_timestamp() THEN o.deliver_at END, NULLIF(u.until, 'infinity'))) \
                 * 1000)::bigint AS state_at_ms "
        )
    };
}

const LIST: &str = concat!("SELECT ", entry_columns!(), matching!(), "ORDER BY o.seq LIMIT $7");

/// Events by filter, ordered by `seq`.
pub(super) async fn events(store: &PgStore, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
    let doing = "reading the outbox";
    let mut txn = store.begin_aside().await?;
    let rows = bound(LIST, filter).fetch_all(&mut *txn).await.context(doing)?;
    txn.rollback().await;
    rows.iter().map(read::entry).collect::<sqlx::Result<_>>().context(doing)
}

const CAUSED: &str = concat!(
    "SELECT ",
    entry_columns!(),
    with_holds!(),
    "WHERE o.seq > (SELECT max(seq) FROM oncebox_outbox) - $2 AND o.causation_id = $1 ORDER BY o.seq LIMIT $3"
);

const IS_LONGER: &str = "SELECT COALESCE(max(seq) - min(seq) >= $1, false) FROM oncebox_outbox";

/// How many events of a message are shown.
const MAX_CAUSED: i64 = 1000;

/// The events that a message caused, among the newest.
pub(super) async fn events_caused_by(
    store: &PgStore,
    message_id: &str,
    newest: u32,
) -> StoreResult<CausedEvents> {
    let doing = "reading the outbox";
    let newest = i64::from(newest);
    let mut txn = store.begin_aside().await?;
    let caused = store.query(CAUSED).bind(message_id).bind(newest).bind(MAX_CAUSED);
    let rows = caused.fetch_all(&mut *txn).await.context(doing)?;
    let longer = store.query(IS_LONGER).bind(newest).fetch_one(&mut *txn).await;
    let is_longer: bool = longer.and_then(|row| row.try_get(0)).context(doing)?;
    txn.rollback().await;
    let events = rows.iter().map(read::entry).collect::<sqlx::Result<_>>().context(doing)?;
    Ok(CausedEvents { events, looked_at_all: !is_longer })
}

/// Their attempts begin anew, so that a sink that gives up after some does not do so at once. What waits behind another
/// goes with it.
const RETRY: &str = concat!(
    "UPDATE oncebox_outbox SET parked_at = NULL, attempts = 0, \
         held_until = CASE WHEN held_until < 'infinity' THEN clock_timestamp() ELSE held_until END \
     WHERE seq IN (SELECT o.seq ",
    matching!(),
    "AND (o.parked_at IS NOT NULL OR u.until > statement_timestamp() \
         AND (o.deliver_at > statement_timestamp()) IS NOT TRUE) AND o.published_at IS NULL \
     ORDER BY o.seq LIMIT $7 FOR UPDATE OF o)"
);

/// One that waits behind another still goes with it.
const SEND_NOW: &str = concat!(
    "UPDATE oncebox_outbox SET deliver_at = clock_timestamp(), \
         held_until = CASE WHEN held_until < 'infinity' THEN clock_timestamp() ELSE held_until END \
     WHERE seq IN (SELECT o.seq ",
    matching!(),
    "ORDER BY o.seq LIMIT $7 FOR UPDATE OF o)"
);

/// Makes parked and held events pending again, or delayed ones if they are asked for.
pub(super) async fn retry_events(store: &PgStore, filter: &EventFilter) -> StoreResult<u64> {
    let sql = if filter.state == Some(EventState::Delayed) { SEND_NOW } else { RETRY };
    let retried = change(store, bound(sql, filter), "retrying events").await?;
    if retried > 0 {
        events_committed();
    }
    Ok(retried)
}

/// The trigger makes due what waits behind them.
const PARK: &str = concat!(
    "UPDATE oncebox_outbox SET parked_at = clock_timestamp(), held_until = NULL, error = $8 \
     WHERE seq IN (SELECT o.seq ",
    matching!(),
    "AND o.parked_at IS NULL AND o.published_at IS NULL ORDER BY o.seq LIMIT $7 FOR UPDATE OF o)"
);

/// Gives up events that wait to be published.
pub(super) async fn park_events(store: &PgStore, filter: &EventFilter, reason: &str) -> StoreResult<u64> {
    let parking = bound(PARK, filter).bind(storable_error(reason));
    let parked = change(store, parking, "parking events").await?;
    if parked > 0 {
        events_committed();
    }
    Ok(parked)
}

const DROP: &str = concat!(
    "DELETE FROM oncebox_outbox WHERE seq IN (SELECT o.seq ",
    matching!(),
    "ORDER BY o.seq LIMIT $7 FOR UPDATE OF o)"
);

/// Removes events for good.
pub(super) async fn drop_events(store: &PgStore, filter: &EventFilter) -> StoreResult<u64> {
    change(store, bound(DROP, filter), "dropping events").await
}

/// How many published events one step removes.
const STEP_ROWS: i64 = 5000;

const PURGE: &str = "DELETE FROM oncebox_outbox WHERE seq IN (SELECT seq FROM oncebox_outbox \
     WHERE published_at <= now() - $1 * interval '1 millisecond' ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

/// A row whose time is over says nothing any more. A relay that was not heard of for a day does not come back.
const FORGET: [&str; 2] = [
    "DELETE FROM oncebox_sweep WHERE (name, row_key) IN (SELECT name, row_key FROM oncebox_sweep \
     WHERE quiet_until <= now() ORDER BY quiet_until LIMIT $1 FOR UPDATE SKIP LOCKED)",
    "DELETE FROM oncebox_relay WHERE relay IN (SELECT relay FROM oncebox_relay \
     WHERE seen_until <= now() - interval '1 day' LIMIT $1 FOR UPDATE SKIP LOCKED)",
];

/// Removes what was published long enough ago; forgets relays that are gone and rows of sweeps whose window is over.
pub(super) async fn purge_published(store: &PgStore, keep: Duration) -> StoreResult<u64> {
    let keep = milliseconds(keep);
    let mut purged = 0;
    loop {
        let step = store.query(PURGE).bind(keep).bind(STEP_ROWS);
        let removed = store.patiently("purging events", change(store, step, "purging events")).await?;
        purged += removed;
        if removed < STEP_ROWS.unsigned_abs() {
            break;
        }
    }
    for forget in FORGET {
        let doing = "forgetting sweeps and relays";
        while store.patiently(doing, change(store, store.query(forget).bind(STEP_ROWS), doing)).await?
            >= STEP_ROWS.unsigned_abs()
        {}
    }
    free_left_behind(store).await?;
    Ok(purged)
}

async fn change(store: &PgStore, statement: Query<'_>, doing: &str) -> StoreResult<u64> {
    let mut txn = store.begin_aside().await?;
    let done = statement.execute(&mut *txn).await.context(doing)?;
    txn.commit_own(doing).await?;
    Ok(done.rows_affected())
}

/// Not prepared by name, so that the plan is made for the filters that are really there.
fn bound<'q>(sql: &'static str, filter: &'q EventFilter) -> Query<'q> {
    sqlx::query(sql)
        .persistent(false)
        .bind(&filter.seqs)
        .bind(filter.id)
        .bind(filter.state.map(EventState::as_str))
        .bind(&filter.topic)
        .bind(&filter.key)
        .bind([filter.after, filter.until.unwrap_or(i64::MAX)])
        .bind(i64::from(filter.limit))
}
