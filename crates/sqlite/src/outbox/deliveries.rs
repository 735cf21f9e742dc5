//! What became of the deliveries of a batch.

use oncebox_core::store::{Deliveries, HeldEvent, ParkedEvent, StoreResult};
use serde_json::{Value, json};
use sqlx::{Row, SqliteConnection};

use super::json;
use super::waiting::{self, held_like_o};
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::{after, now, now_moved};

/// The most bytes of an error that are kept.
const MAX_ERROR_BYTES: usize = 4000;

const REMOVE: &str = "DELETE FROM oncebox_outbox WHERE seq IN (SELECT value FROM json_each(?1))";

const KEEP: &str = concat!(
    "UPDATE oncebox_outbox SET published_at = ",
    now!(),
    ", held_until = NULL, parked_at = NULL, error = NULL
     WHERE seq IN (SELECT value FROM json_each(?1)) AND published_at IS NULL"
);

/// Whether the event is still pending and its shard still belongs to one of the leases in parameter 2.
macro_rules! mine {
    () => {
        "o.published_at IS NULL AND o.parked_at IS NULL AND o.shard IN (
            SELECT s.shard FROM json_each(?2) l
            JOIN oncebox_shard s ON s.shard = l.value->>0 AND s.epoch = l.value->>1)"
    };
}

const HOLD: &str = concat!(
    "UPDATE oncebox_outbox AS o SET held_until = ",
    now_moved!("h.value->>1"),
    ", attempts = o.attempts + (h.value->>2 IS NOT NULL), error = coalesce(h.value->>2, o.error)
     FROM json_each(?1) h WHERE o.seq = h.value->>0 AND ",
    mine!()
);

const PARK: &str = concat!(
    "UPDATE oncebox_outbox AS o SET parked_at = ",
    now!(),
    ", held_until = NULL, attempts = o.attempts + 1, error = p.value->>1
     FROM json_each(?1) p WHERE o.seq = p.value->>0 AND ",
    mine!()
);

// The first held event of a key had a time; behind another one it has none.
const NEXT_HELD: &str = concat!(
    "SELECT json_group_array(seq) FROM (
        SELECT (SELECT h.seq FROM ",
    held_like_o!(),
    " AND h.seq > o.seq ORDER BY h.seq LIMIT 1) AS seq
        FROM json_each(?1) s CROSS JOIN oncebox_outbox o ON o.seq = s.value) WHERE seq IS NOT NULL"
);

/// Writes it down in one transaction.
pub(super) async fn record_deliveries(store: &SqliteStore, deliveries: &Deliveries) -> StoreResult<()> {
    let Deliveries { published, held, parked, .. } = deliveries;
    if published.is_empty() && held.is_empty() && parked.is_empty() {
        return Ok(());
    }
    let doing = format!(
        "recording {} published, {} held, {} parked events",
        published.len(),
        held.len(),
        parked.len()
    );
    let mut txn = store.begin().await?;
    record_in(&mut txn, deliveries).await.context(&doing)?;
    txn.commit_own(&doing).await
}

async fn record_in(conn: &mut SqliteConnection, deliveries: &Deliveries) -> sqlx::Result<()> {
    let Deliveries { published, held, parked, .. } = deliveries;
    let leaving = json(published.iter().copied().chain(parked.iter().map(|event| event.seq)));
    let keys = waiting::keys_with_waiting(conn, &leaving).await?;
    if !published.is_empty() {
        let sql = if deliveries.keep { KEEP } else { REMOVE };
        sqlx::query(sql).bind(json(published.iter().copied())).execute(&mut *conn).await?;
    }
    let leases = json(deliveries.leases.iter().map(|lease| json!([lease.shard, lease.epoch])));
    if !parked.is_empty() {
        sqlx::query(PARK).bind(json(parked.iter().map(park))).bind(&leases).execute(&mut *conn).await?;
    }
    if !held.is_empty() {
        sqlx::query(HOLD).bind(json(held.iter().map(hold))).bind(&leases).execute(&mut *conn).await?;
        let seqs = json(held.iter().map(|event| event.seq));
        let next = sqlx::query(NEXT_HELD).bind(&seqs).fetch_one(&mut *conn).await?;
        waiting::wait(conn, &seqs).await?;
        waiting::wait(conn, next.try_get(0)?).await?;
    }
    waiting::follow(conn, &keys).await
}

fn hold(event: &HeldEvent) -> Value {
    json!([event.seq, after(event.delay), event.error.as_deref().map(short)])
}

fn park(event: &ParkedEvent) -> Value {
    json!([event.seq, short(&event.error)])
}

/// The beginning of an error. NUL would end the text in SQLite's functions.
pub(super) fn short(error: &str) -> String {
    let cut = error.floor_char_boundary(MAX_ERROR_BYTES);
    error[..cut].replace('\0', " ")
}
