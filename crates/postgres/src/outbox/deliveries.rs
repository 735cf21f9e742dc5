//! What became of the deliveries of a batch.

use oncebox_core::store::{Deliveries, HeldEvent, StoreResult};
use sqlx::Row;

use crate::classify::Context;
use crate::dead::storable_error;
use crate::store::PgStore;
use crate::time::milliseconds;
use crate::txn::PgTxn;

const REMOVE: &str = "DELETE FROM oncebox_outbox WHERE seq = ANY ($1)";

const KEEP: &str = "UPDATE oncebox_outbox SET published_at = clock_timestamp(), held_until = NULL, parked_at = NULL \
     WHERE seq = ANY ($1) AND published_at IS NULL";

/// Writes it down in one transaction. It does not wait for the disk: see [`PgStore::begin_relay`]. What a crash of the
/// server loses is delivered again: a second copy of an event, which receivers tell by its id.
pub(super) async fn record_deliveries(store: &PgStore, deliveries: &Deliveries) -> StoreResult<()> {
    let mut txn = store.begin_relay().await?;
    if !deliveries.published.is_empty() {
        // In their order, so that two relays that record the same events do not deadlock.
        let mut seqs = deliveries.published.clone();
        seqs.sort_unstable();
        store
            .query(if deliveries.keep { KEEP } else { REMOVE })
            .bind(seqs)
            .execute(&mut *txn)
            .await
            .context("removing published events")?;
    }
    if !deliveries.held.is_empty() || !deliveries.parked.is_empty() {
        lock_events(store, &mut txn, deliveries).await?;
        let shards = still_leased(store, &mut txn, deliveries).await?;
        hold(store, &mut txn, &deliveries.held, &shards).await?;
        park_events(store, &mut txn, deliveries, &shards).await?;
    }
    txn.commit_own("recording deliveries").await
}

/// Comes before the shards are locked: an operator may hold such a row for long, and who waits for it must not keep all
/// relays from renewing their leases.
const LOCK_EVENTS: &str = "SELECT FROM oncebox_outbox WHERE seq = ANY ($1) ORDER BY seq FOR UPDATE";

async fn lock_events(store: &PgStore, txn: &mut PgTxn, deliveries: &Deliveries) -> StoreResult<()> {
    let held = deliveries.held.iter().map(|event| event.seq);
    let seqs: Vec<i64> = held.chain(deliveries.parked.iter().map(|event| event.seq)).collect();
    store.query(LOCK_EVENTS).bind(seqs).execute(&mut **txn).await.context("locking events")?;
    Ok(())
}

/// The shards that still belong to whoever read the batch. They are locked, so that nobody takes them over before this
/// transaction is through.
const STILL_LEASED: &str = "SELECT s.shard FROM oncebox_shard s \
     JOIN unnest($1::int[], $2::bigint[]) AS l(shard, epoch) ON l.shard = s.shard AND l.epoch = s.epoch \
     ORDER BY s.shard FOR SHARE OF s";

async fn still_leased(store: &PgStore, txn: &mut PgTxn, deliveries: &Deliveries) -> StoreResult<Vec<i32>> {
    let rows = store
        .query(STILL_LEASED)
        .bind(deliveries.leases.iter().map(|lease| i32::from(lease.shard)).collect::<Vec<_>>())
        .bind(deliveries.leases.iter().map(|lease| lease.epoch).collect::<Vec<_>>())
        .fetch_all(&mut **txn)
        .await
        .context("looking at the shards")?;
    rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().context("looking at the shards")
}

const HOLD_FAILED: &str = "UPDATE oncebox_outbox o \
     SET held_until = clock_timestamp() + f.ms * interval '1 millisecond', attempts = o.attempts + 1, error = f.error \
     FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS f(seq, ms, error) \
     WHERE o.seq = f.seq AND o.shard = ANY ($4) AND o.published_at IS NULL AND o.parked_at IS NULL";

/// Behind a held one, or another of these, they wait for it; otherwise (they are early, or it was dropped meanwhile) for their
/// time. The held one is locked, so that who takes it away at this moment finds those behind it.
const HOLD_WAITING: &str = "WITH waiting AS MATERIALIZED ( \
         SELECT w.seq, w.ms, first.seq IS NOT NULL \
             OR e.key IS NOT NULL AND row_number() OVER (PARTITION BY e.topic, e.key ORDER BY e.seq) > 1 AS behind \
         FROM unnest($1::bigint[], $2::bigint[]) AS w(seq, ms) \
         JOIN oncebox_outbox e ON e.seq = w.seq AND e.shard = ANY ($3) AND e.published_at IS NULL AND e.parked_at IS NULL \
         LEFT JOIN LATERAL (SELECT h.seq FROM oncebox_outbox h \
             WHERE h.topic = e.topic AND sha256(h.key) = sha256(e.key) AND h.key = e.key \
                 AND h.held_until IS NOT NULL AND h.seq < e.seq \
             ORDER BY h.seq LIMIT 1 FOR SHARE) AS first ON true) \
     UPDATE oncebox_outbox o SET held_until = \
         CASE WHEN w.behind THEN 'infinity' ELSE clock_timestamp() + w.ms * interval '1 millisecond' END \
     FROM waiting w WHERE o.seq = w.seq AND o.shard = ANY ($3) AND o.published_at IS NULL AND o.parked_at IS NULL";

async fn hold(store: &PgStore, txn: &mut PgTxn, held: &[HeldEvent], shards: &[i32]) -> StoreResult<()> {
    let doing = "holding events";
    let (mut tried, mut errors, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for event in held {
        let place = (event.seq, milliseconds(event.delay));
        match &event.error {
            Some(error) => {
                tried.push(place);
                errors.push(storable_error(error));
            }
            None => waiting.push(place),
        }
    }
    if !tried.is_empty() {
        let (seqs, delays): (Vec<i64>, Vec<i64>) = tried.into_iter().unzip();
        store
            .query(HOLD_FAILED)
            .bind(seqs)
            .bind(delays)
            .bind(errors)
            .bind(shards)
            .execute(&mut **txn)
            .await
            .context(doing)?;
    }
    if !waiting.is_empty() {
        let (seqs, delays): (Vec<i64>, Vec<i64>) = waiting.into_iter().unzip();
        store
            .query(HOLD_WAITING)
            .bind(seqs)
            .bind(delays)
            .bind(shards)
            .execute(&mut **txn)
            .await
            .context(doing)?;
    }
    Ok(())
}

const PARK: &str = "UPDATE oncebox_outbox o \
     SET parked_at = clock_timestamp(), held_until = NULL, attempts = o.attempts + 1, error = p.error \
     FROM unnest($1::bigint[], $2::text[]) AS p(seq, error) \
     WHERE o.seq = p.seq AND o.shard = ANY ($3) AND o.published_at IS NULL AND o.parked_at IS NULL";

async fn park_events(
    store: &PgStore,
    txn: &mut PgTxn,
    deliveries: &Deliveries,
    shards: &[i32],
) -> StoreResult<()> {
    if deliveries.parked.is_empty() {
        return Ok(());
    }
    store
        .query(PARK)
        .bind(deliveries.parked.iter().map(|event| event.seq).collect::<Vec<_>>())
        .bind(deliveries.parked.iter().map(|event| storable_error(&event.error)).collect::<Vec<_>>())
        .bind(shards)
        .execute(&mut **txn)
        .await
        .context("parking events")?;
    Ok(())
}
