//! Reading around held events.
//!
//! Only for topics in which something is held. Events behind a held one of their key first leave the index of ready events,
//! so that a million of them cannot stand before the others; then what may go now is read.

use std::iter;

use oncebox_core::store::StoreResult;
use sqlx::postgres::PgRow;

use super::read::Wanted;
use super::read::event_columns;
use crate::classify::Context;
use crate::store::PgStore;
use crate::txn::PgTxn;

/// How many events of a shard are looked at in the later steps, and how many steps are made before the caller is told that
/// there is nothing for now.
const STEP_EVENTS: i64 = 4000;
const MAX_STEPS: usize = 8;

/// The held one is locked: who takes it away at this moment waits, and then finds those that were put behind it.
const PUT_BEHIND: &str = "WITH ahead AS MATERIALIZED ( \
         SELECT o.seq, o.key FROM unnest($2::int[]) AS s(shard) CROSS JOIN LATERAL (SELECT o.seq, o.key \
             FROM oncebox_outbox o WHERE o.topic = $1 AND o.shard = s.shard \
                 AND o.published_at IS NULL AND o.parked_at IS NULL AND o.held_until IS NULL \
             ORDER BY o.seq LIMIT $3) AS o WHERE o.key IS NOT NULL \
         UNION ALL \
         SELECT o.seq, o.key FROM unnest($2::int[]) AS s(shard) CROSS JOIN LATERAL (SELECT o.seq, o.key \
             FROM oncebox_outbox o WHERE o.topic = $1 AND o.shard = s.shard AND o.held_until < 'infinity' \
                 AND o.held_until <= statement_timestamp() \
             ORDER BY o.held_until LIMIT $3) AS o WHERE o.key IS NOT NULL), \
     behind AS MATERIALIZED ( \
         SELECT a.seq FROM ahead a CROSS JOIN LATERAL (SELECT h.seq FROM oncebox_outbox h \
             WHERE h.topic = $1 AND sha256(h.key) = sha256(a.key) AND h.key = a.key AND h.held_until IS NOT NULL \
                 AND h.seq < a.seq \
             ORDER BY h.seq LIMIT 1 FOR SHARE) AS first) \
     UPDATE oncebox_outbox o SET held_until = 'infinity' FROM behind b WHERE o.seq = b.seq \
         AND o.published_at IS NULL AND o.parked_at IS NULL";

/// Ready events that wait for nothing; held ones that are due; and what waits behind those, up to the next one that failed on
/// its own and is not due. Of each key they are the first ones: where a shard's share of ready events is used up, nothing
/// beyond it is taken.
const AROUND: &str = concat!(
    "WITH fresh AS MATERIALIZED ( \
         SELECT o.seq, o.key, s.shard FROM unnest($2::int[]) AS s(shard) CROSS JOIN LATERAL (SELECT o.seq, o.key \
             FROM oncebox_outbox o WHERE o.topic = $1 AND o.shard = s.shard \
                 AND o.published_at IS NULL AND o.parked_at IS NULL AND o.held_until IS NULL \
             ORDER BY o.seq LIMIT $3) AS o), \
     looked_at AS (SELECT shard, max(seq) AS last FROM fresh GROUP BY shard HAVING count(*) >= $3), \
     due AS MATERIALIZED ( \
         SELECT o.seq, o.key, s.shard FROM unnest($2::int[]) AS s(shard) CROSS JOIN LATERAL (SELECT o.seq, o.key \
             FROM oncebox_outbox o WHERE o.topic = $1 AND o.shard = s.shard AND o.held_until < 'infinity' \
                 AND o.held_until <= statement_timestamp() \
             ORDER BY o.held_until LIMIT $3) AS o \
         WHERE o.key IS NULL OR NOT EXISTS (SELECT FROM oncebox_outbox h \
             WHERE h.topic = $1 AND sha256(h.key) = sha256(o.key) AND h.key = o.key AND h.held_until IS NOT NULL \
                 AND h.seq < o.seq)), \
     followers AS ( \
         SELECT w.seq, w.shard FROM (SELECT f.seq, d.shard, bool_or(f.held_until > statement_timestamp() \
                 AND f.held_until < 'infinity') OVER (PARTITION BY d.seq ORDER BY f.seq) AS stopped \
             FROM due d CROSS JOIN LATERAL (SELECT f.seq, f.held_until FROM oncebox_outbox f \
                 WHERE f.topic = $1 AND sha256(f.key) = sha256(d.key) AND f.key = d.key AND f.held_until IS NOT NULL \
                     AND f.seq > d.seq \
                 ORDER BY f.seq LIMIT (SELECT GREATEST($4 / GREATEST(count(*), 1), 1) FROM due)) AS f) AS w \
         WHERE NOT w.stopped), \
     chosen AS ( \
         SELECT c.seq FROM ( \
             SELECT f.seq, f.shard FROM fresh f WHERE f.key IS NULL OR NOT EXISTS (SELECT FROM oncebox_outbox h \
                 WHERE h.topic = $1 AND sha256(h.key) = sha256(f.key) AND h.key = f.key AND h.held_until IS NOT NULL \
                     AND h.seq < f.seq) \
             UNION ALL SELECT seq, shard FROM due UNION ALL SELECT seq, shard FROM followers) AS c \
         LEFT JOIN looked_at l ON l.shard = c.shard \
         WHERE l.last IS NULL OR c.seq <= l.last ORDER BY c.seq LIMIT $4) \
     SELECT seq, id, key, payload, headers, created_at_ms, causation_id, attempts, shard, deliver_at_ms FROM ( \
         SELECT w.*, row_number() OVER in_order AS place, \
             sum(COALESCE(octet_length(w.payload), 0) + COALESCE(octet_length(w.key), 0) + octet_length(w.headers)) \
                 OVER in_order AS bytes \
         FROM (SELECT ",
    event_columns!(),
    "        FROM chosen c JOIN oncebox_outbox o ON o.seq = c.seq) AS w \
         WINDOW in_order AS (ORDER BY w.seq ROWS UNBOUNDED PRECEDING)) AS bounded \
     WHERE place = 1 OR bytes <= $5 ORDER BY seq"
);

pub(super) async fn around_held(
    store: &PgStore,
    txn: &mut PgTxn,
    wanted: &Wanted,
) -> StoreResult<Vec<PgRow>> {
    let doing = "reading events around held ones";
    let enough = usize::try_from(wanted.events).unwrap_or(usize::MAX).div_ceil(2);
    // First as if most events could go; then all of the batch from one shard; then past many that wait.
    let shares =
        [wanted.share, wanted.events].into_iter().chain(iter::repeat(STEP_EVENTS.max(wanted.events)));
    let mut rows = Vec::new();
    for share in shares.take(MAX_STEPS) {
        let put_behind = store
            .query(PUT_BEHIND)
            .bind(&*wanted.topic)
            .bind(&wanted.shards)
            .bind(share)
            .execute(&mut **txn)
            .await
            .context(doing)?
            .rows_affected();
        rows = store
            .query(AROUND)
            .bind(&*wanted.topic)
            .bind(&wanted.shards)
            .bind(share)
            .bind(wanted.events)
            .bind(wanted.bytes)
            .fetch_all(&mut **txn)
            .await
            .context(doing)?;
        let some_wait = share < wanted.events || (rows.is_empty() && put_behind > 0);
        if rows.len() >= enough || !some_wait {
            break;
        }
    }
    Ok(rows)
}
