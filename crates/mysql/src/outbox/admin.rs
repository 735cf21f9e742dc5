//! Events by filter, and what operators do with them.

use std::time::Duration;

use oncebox_core::outbox::events_committed;
use oncebox_core::store::{CausedEvents, EventFilter, EventState, OutboxEntry, StoreResult};
use sqlx::{MySqlConnection, Row};

use super::left_behind::free_left_behind;
use super::read::{self, event_columns};
use super::waiting::{self, HeldKey, behind};
use super::{STATEMENT_NUMBERS, change, events_by_seq, fetch, list};
use crate::classify::Context;
use crate::dead::storable_error;
use crate::quote::{push_bytes, text};
use crate::store::MysqlStore;
use crate::time::milliseconds;

/// Until when an event is held: one that waits behind another until that one is due. The order names the whole index: MySQL
/// would otherwise sort all that wait.
macro_rules! until {
    () => {
        "IF(o.held_until = TIMESTAMP'9999-12-31 23:59:59.999999', \
         (SELECT h.held_until FROM oncebox_outbox h FORCE INDEX (oncebox_outbox_held) \
         WHERE h.held_key = o.held_key ORDER BY h.held_key, h.seq LIMIT 1), o.held_until)"
    };
}

/// Whether the time of an event has not come.
macro_rules! is_early {
    () => {
        "COALESCE(o.deliver_at > UTC_TIMESTAMP(6), FALSE)"
    };
}

const LIST: &str = concat!(
    "SELECT ",
    event_columns!(),
    ", o.topic, o.consumer, o.tenant, o.error, \
     CASE WHEN o.published_at IS NOT NULL THEN 'published' WHEN o.parked_at IS NOT NULL THEN 'parked' WHEN ",
    is_early!(),
    " THEN 'delayed' WHEN ",
    until!(),
    " > UTC_TIMESTAMP(6) THEN 'held' ELSE 'pending' END AS state, \
     TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', COALESCE(o.published_at, o.parked_at, \
     IF(",
    is_early!(),
    ", o.deliver_at, NULL), NULLIF(",
    until!(),
    ", ",
    behind!(),
    "))) DIV 1000 AS state_at_ms FROM oncebox_outbox o"
);

/// Events by filter, ordered by `seq`.
pub(super) async fn events(store: &MysqlStore, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
    let doing = "reading the outbox";
    let mut txn = store.begin_aside().await?;
    let rows = fetch(&mut txn, format!("{LIST}{}", matching(filter, ""))).await.context(doing)?;
    txn.rollback().await;
    rows.iter().map(read::entry).collect::<sqlx::Result<_>>().context(doing)
}

/// How many events of a message are shown.
const MAX_CAUSED: usize = 1000;

/// The events that a message caused, among the newest.
pub(super) async fn events_caused_by(
    store: &MysqlStore,
    message_id: &str,
    newest: u32,
) -> StoreResult<CausedEvents> {
    let doing = "reading the outbox";
    let mut txn = store.begin_aside().await?;
    let ends = "SELECT MIN(seq), MAX(seq) FROM oncebox_outbox".to_owned();
    let ends = fetch(&mut txn, ends).await.context(doing)?;
    let end = |nth: usize| ends.first().map(|row| row.try_get::<Option<i64>, _>(nth)).transpose();
    let (first, last) = (end(0).context(doing)?.flatten(), end(1).context(doing)?.flatten());
    let after = last.unwrap_or_default().saturating_sub(newest.into());
    // Byte for byte: for the first comparison, blanks at the end are no difference.
    let sql = format!(
        "{LIST} WHERE o.seq > {after} AND o.causation_id = {id} AND CAST(o.causation_id AS BINARY) = CAST({id} AS BINARY) \
         ORDER BY o.seq LIMIT {MAX_CAUSED}",
        id = text(message_id)
    );
    let rows = fetch(&mut txn, sql).await.context(doing)?;
    txn.rollback().await;
    let events = rows.iter().map(read::entry).collect::<sqlx::Result<_>>().context(doing)?;
    Ok(CausedEvents { events, looked_at_all: first.is_none_or(|first| first > after) })
}

/// Neither published nor given up.
const WAITS: &str = " AND o.published_at IS NULL AND o.parked_at IS NULL";

/// Parked, or held beyond now and not for its time.
const STANDS: &str = concat!(
    " AND o.published_at IS NULL AND (o.parked_at IS NOT NULL OR ",
    until!(),
    " > UTC_TIMESTAMP(6) AND NOT ",
    is_early!(),
    ")"
);

/// Makes parked and held events pending again, or delayed ones if they are asked for. Their attempts begin anew, so that a sink that gives up after some does not do
/// so at once. What waits behind another goes with it.
pub(super) async fn retry_events(store: &MysqlStore, filter: &EventFilter) -> StoreResult<u64> {
    let doing = "retrying events";
    let mut txn = store.begin_aside().await?;
    let (further, also) = match filter.state {
        Some(EventState::Delayed) => ("", "o.deliver_at = UTC_TIMESTAMP(6), "),
        _ => (STANDS, ""),
    };
    let (seqs, _) = lock(&mut txn, filter, further).await.context(doing)?;
    let mut retried = 0;
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let sql = format!(
            concat!(
                "UPDATE {} SET {also}o.attempts = 0, o.parked_at = NULL, \
                     o.held_until = IF(o.held_until < ",
                behind!(),
                ", UTC_TIMESTAMP(6), o.held_until)"
            ),
            events_by_seq(part),
            also = also
        );
        retried += change(&mut txn, sql).await.context(doing)?;
    }
    txn.commit_own(doing).await?;
    if retried > 0 {
        events_committed();
    }
    Ok(retried)
}

/// Gives up events that wait to be published.
pub(super) async fn park_events(store: &MysqlStore, filter: &EventFilter, reason: &str) -> StoreResult<u64> {
    let doing = "parking events";
    let mut txn = store.begin_aside().await?;
    let (seqs, keys) = lock(&mut txn, filter, WAITS).await.context(doing)?;
    let mut parked = 0;
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let sql = format!(
            "UPDATE {} SET o.parked_at = UTC_TIMESTAMP(6), o.held_until = NULL, o.error = {}",
            events_by_seq(part),
            text(storable_error(reason))
        );
        parked += change(&mut txn, sql).await.context(doing)?;
    }
    waiting::follow(&mut txn, keys).await.context(doing)?;
    txn.commit_own(doing).await?;
    if parked > 0 {
        events_committed();
    }
    Ok(parked)
}

/// Removes events for good.
pub(super) async fn drop_events(store: &MysqlStore, filter: &EventFilter) -> StoreResult<u64> {
    let doing = "dropping events";
    let mut txn = store.begin_aside().await?;
    let (seqs, keys) = lock(&mut txn, filter, "").await.context(doing)?;
    let mut dropped = 0;
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        dropped += change(&mut txn, format!("DELETE o FROM {}", events_by_seq(part))).await.context(doing)?;
    }
    waiting::follow(&mut txn, keys).await.context(doing)?;
    txn.commit_own(doing).await?;
    Ok(dropped)
}

/// Finds events and locks them; returns those that still match under the lock, and the keys of the held ones: what was
/// published or retried meanwhile is not meant any more.
async fn lock(
    conn: &mut MySqlConnection,
    filter: &EventFilter,
    further: &str,
) -> sqlx::Result<(Vec<i64>, Vec<HeldKey>)> {
    let (mut seqs, mut keys) = (Vec::new(), Vec::new());
    for part in found(conn, filter, further).await?.chunks(STATEMENT_NUMBERS) {
        keys.extend(waiting::lock_held(conn, part).await?.into_values());
        let locked = EventFilter { seqs: part.to_vec(), ..filter.clone() };
        seqs.append(&mut found(conn, &locked, further).await?);
    }
    Ok((seqs, keys))
}

async fn found(conn: &mut MySqlConnection, filter: &EventFilter, further: &str) -> sqlx::Result<Vec<i64>> {
    let sql = format!("SELECT o.seq FROM oncebox_outbox o{}", matching(filter, further));
    fetch(conn, sql).await?.iter().map(|row| row.try_get(0)).collect()
}

/// The conditions that are asked for and no others, so that the server sees which index helps.
fn matching(filter: &EventFilter, further: &str) -> String {
    let mut sql = format!(" WHERE o.seq > {}", filter.after);
    if let Some(until) = filter.until {
        sql.push_str(&format!(" AND o.seq <= {until}"));
    }
    if !filter.seqs.is_empty() {
        sql.push_str(&format!(" AND o.seq IN ({})", list(&filter.seqs)));
    }
    if let Some(id) = filter.id {
        sql.push_str(&format!(" AND o.id = '{id}'"));
    }
    if let Some(topic) = &filter.topic {
        sql.push_str(&format!(" AND o.topic = {}", text(topic)));
    }
    if let Some(key) = &filter.key {
        sql.push_str(" AND o.`key` = ");
        push_bytes(&mut sql, key);
    }
    sql.push_str(in_state(filter.state));
    sql.push_str(further);
    sql.push_str(&format!(" ORDER BY o.seq LIMIT {}", filter.limit));
    sql
}

fn in_state(state: Option<EventState>) -> &'static str {
    match state {
        None => "",
        Some(EventState::Pending) => concat!(
            " AND o.published_at IS NULL AND o.parked_at IS NULL AND (o.held_until IS NULL OR ",
            until!(),
            " <= UTC_TIMESTAMP(6)) AND NOT ",
            is_early!()
        ),
        Some(EventState::Delayed) => {
            concat!(" AND o.published_at IS NULL AND o.parked_at IS NULL AND ", is_early!())
        }
        Some(EventState::Held) => concat!(
            " AND o.published_at IS NULL AND o.parked_at IS NULL AND ",
            until!(),
            " > UTC_TIMESTAMP(6) AND NOT ",
            is_early!()
        ),
        Some(EventState::Parked) => " AND o.published_at IS NULL AND o.parked_at IS NOT NULL",
        Some(EventState::Published) => " AND o.published_at IS NOT NULL",
    }
}

/// How many rows one step removes.
const STEP_ROWS: usize = 1000;

/// A relay that was not heard of for a day does not come back.
const FORGET_RELAYS: &str = "DELETE FROM oncebox_relay WHERE seen_until <= UTC_TIMESTAMP(6) - INTERVAL 1 DAY";

/// Removes what was published long enough ago; forgets relays that are gone and rows of sweeps whose window is over.
pub(super) async fn purge_published(store: &MysqlStore, keep: Duration) -> StoreResult<u64> {
    let doing = "purging events";
    let mut purged = 0;
    while let Some(removed) = store.patiently(doing, purge_step(store, milliseconds(keep))).await? {
        purged += removed;
    }
    let doing = "forgetting sweeps and relays";
    while store.patiently(doing, forget_sweeps(store)).await? {}
    store.patiently(doing, forget_relays(store)).await?;
    free_left_behind(store).await?;
    Ok(purged)
}

/// `None` when nothing is left.
async fn purge_step(store: &MysqlStore, keep_ms: i64) -> StoreResult<Option<u64>> {
    let doing = "purging events";
    let mut txn = store.begin_aside().await?;
    let sql = format!(
        "SELECT seq FROM oncebox_outbox FORCE INDEX (oncebox_outbox_published) \
         WHERE published_at <= UTC_TIMESTAMP(6) - INTERVAL {keep_ms} * 1000 MICROSECOND \
         ORDER BY published_at LIMIT {STEP_ROWS}"
    );
    let rows = fetch(&mut txn, sql).await.context(doing)?;
    let seqs: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().context(doing)?;
    if seqs.is_empty() {
        txn.rollback().await;
        return Ok(None);
    }
    let sql = format!("DELETE o FROM {} WHERE o.published_at IS NOT NULL", events_by_seq(&seqs));
    let removed = change(&mut txn, sql).await.context(doing)?;
    txn.commit_own(doing).await?;
    Ok(Some(removed))
}

/// A row whose time is over says nothing any more. Returns whether there may be more of them.
async fn forget_sweeps(store: &MysqlStore) -> StoreResult<bool> {
    let doing = "forgetting sweeps";
    let mut txn = store.begin_aside().await?;
    let sql = format!(
        "SELECT name, row_hash FROM oncebox_sweep FORCE INDEX (oncebox_sweep_over) \
         WHERE quiet_until <= UTC_TIMESTAMP(6) ORDER BY quiet_until LIMIT {STEP_ROWS}"
    );
    let rows = fetch(&mut txn, sql).await.context(doing)?;
    let mut places: Vec<(String, Vec<u8>)> = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<sqlx::Result<_>>()
        .context(doing)?;
    places.sort_unstable();
    if !places.is_empty() {
        let deletes: Vec<String> = places.iter().map(|(name, hash)| forget_row(name, hash)).collect();
        change(&mut txn, deletes.join("; ")).await.context(doing)?;
    }
    txn.commit_own(doing).await?;
    Ok(places.len() >= STEP_ROWS)
}

fn forget_row(name: &str, hash: &[u8]) -> String {
    let mut sql = format!("DELETE FROM oncebox_sweep WHERE name = {} AND row_hash = ", text(name));
    push_bytes(&mut sql, hash);
    sql.push_str(" AND quiet_until <= UTC_TIMESTAMP(6)");
    sql
}

async fn forget_relays(store: &MysqlStore) -> StoreResult<()> {
    let doing = "forgetting relays";
    let mut txn = store.begin_aside().await?;
    store.query(FORGET_RELAYS).execute(&mut *txn).await.context(doing)?;
    txn.commit_own(doing).await
}
