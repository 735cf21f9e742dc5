//! Events by filter, and what operators do with them.

use std::time::Duration;

use oncebox_core::outbox::events_committed;
use oncebox_core::store::{EventFilter, EventState, OutboxEntry, StoreResult};
use sqlx::{MySqlConnection, Row};

use super::left_behind::free_left_behind;
use super::read::{self, event_columns};
use super::waiting::{self, behind};
use super::{STATEMENT_NUMBERS, change, fetch, list};
use crate::classify::Context;
use crate::quote::{push_bytes, text};
use crate::store::MysqlStore;
use crate::time::{in_ms, milliseconds};

const LIST: &str = concat!(
    "SELECT ",
    event_columns!(),
    ", o.topic, o.consumer, o.tenant, o.error, \
     CASE WHEN o.published_at IS NOT NULL THEN 'published' WHEN o.parked_at IS NOT NULL THEN 'parked' \
         WHEN o.held_until > UTC_TIMESTAMP(6) THEN 'held' ELSE 'pending' END AS state, ",
    in_ms!(
        "COALESCE(o.published_at, o.parked_at, IF(o.held_until > UTC_TIMESTAMP(6) AND o.held_until < \
         TIMESTAMP'9999-12-31 23:59:59.999999', o.held_until, NULL))"
    ),
    " AS state_at_ms FROM oncebox_outbox o"
);

/// Events by filter, ordered by `seq`.
pub(super) async fn events(store: &MysqlStore, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
    let doing = "reading the outbox";
    let mut txn = store.begin_aside().await?;
    let rows = fetch(&mut txn, format!("{LIST}{}", matching(filter, ""))).await.context(doing)?;
    txn.rollback().await;
    rows.iter().map(read::entry).collect::<sqlx::Result<_>>().context(doing)
}

/// Parked, or held beyond now.
const STANDS: &str =
    " AND o.published_at IS NULL AND (o.parked_at IS NOT NULL OR o.held_until > UTC_TIMESTAMP(6))";

/// Makes parked and held events pending again. Their attempts begin anew, so that a sink that gives up after some does not do
/// so at once. What waits behind another goes with it.
pub(super) async fn retry_events(store: &MysqlStore, filter: &EventFilter) -> StoreResult<u64> {
    let doing = "retrying events";
    let mut txn = store.begin_aside().await?;
    let seqs = found(&mut txn, filter, STANDS).await.context(doing)?;
    let mut retried = 0;
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let sql = format!(
            concat!(
                "UPDATE oncebox_outbox o FORCE INDEX (PRIMARY) SET o.attempts = 0, o.parked_at = NULL, \
                     o.held_until = IF(o.held_until < ",
                behind!(),
                ", UTC_TIMESTAMP(6), o.held_until) WHERE o.seq IN ({}){}"
            ),
            list(part),
            STANDS
        );
        retried += change(&mut txn, sql).await.context(doing)?;
    }
    txn.commit_own(doing).await?;
    if retried > 0 {
        events_committed();
    }
    Ok(retried)
}

/// Removes events for good.
pub(super) async fn drop_events(store: &MysqlStore, filter: &EventFilter) -> StoreResult<u64> {
    let doing = "dropping events";
    let mut txn = store.begin_aside().await?;
    let seqs = found(&mut txn, filter, "").await.context(doing)?;
    let dropped = drop_in(&mut txn, &seqs, filter).await.context(doing)?;
    txn.commit_own(doing).await?;
    Ok(dropped)
}

/// The state is asked for once more under the lock: what was published or retried meanwhile is not meant any more.
async fn drop_in(conn: &mut MySqlConnection, seqs: &[i64], filter: &EventFilter) -> sqlx::Result<u64> {
    let (mut dropped, mut keys) = (0, Vec::new());
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let held = waiting::lock_held(conn, part).await?;
        let sql = format!(
            "DELETE o FROM oncebox_outbox o FORCE INDEX (PRIMARY) WHERE o.seq IN ({}){}",
            list(part),
            in_state(filter.state)
        );
        dropped += change(conn, sql).await?;
        keys.extend(held.into_values());
    }
    waiting::follow(conn, keys).await?;
    Ok(dropped)
}

async fn found(conn: &mut MySqlConnection, filter: &EventFilter, further: &str) -> sqlx::Result<Vec<i64>> {
    let sql = format!("SELECT o.seq FROM oncebox_outbox o{}", matching(filter, further));
    fetch(conn, sql).await?.iter().map(|row| row.try_get(0)).collect()
}

/// The conditions that are asked for and no others, so that the server sees which index helps.
fn matching(filter: &EventFilter, further: &str) -> String {
    let mut sql = format!(" WHERE o.seq > {}", filter.after);
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
        Some(EventState::Pending) => {
            " AND o.published_at IS NULL AND o.parked_at IS NULL \
              AND (o.held_until IS NULL OR o.held_until <= UTC_TIMESTAMP(6))"
        }
        Some(EventState::Held) => {
            " AND o.published_at IS NULL AND o.parked_at IS NULL AND o.held_until > UTC_TIMESTAMP(6)"
        }
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
    let sql = format!(
        "DELETE o FROM oncebox_outbox o FORCE INDEX (PRIMARY) WHERE o.seq IN ({}) AND o.published_at IS NOT NULL",
        list(&seqs)
    );
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
