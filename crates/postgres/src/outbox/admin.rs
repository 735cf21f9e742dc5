//! Events by filter, and what operators do with them.

use std::time::Duration;

use oncebox_core::outbox::events_committed;
use oncebox_core::store::{EventFilter, EventState, OutboxEntry, StoreResult};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use super::milliseconds;
use super::row::{self, event_columns};
use crate::classify::own;
use crate::store::PgStore;
use crate::txn::STILL_OPEN;

/// How many published events one step removes.
const STEP: i64 = 5000;

macro_rules! state {
    () => {
        "CASE WHEN o.published_at IS NOT NULL THEN 'published' WHEN o.parked_at IS NOT NULL THEN 'parked' \
             WHEN u.until > statement_timestamp() THEN 'held' ELSE 'pending' END"
    };
}

/// An event that waits behind another is held until that one is due. The state is asked for in two ways: the second says it
/// so that an index can answer.
macro_rules! matching {
    () => {
        concat!(
            "FROM oncebox_outbox o CROSS JOIN LATERAL (SELECT CASE o.held_until WHEN 'infinity' THEN ( \
                 SELECT h.held_until FROM oncebox_outbox h WHERE h.topic = o.topic AND sha256(h.key) = sha256(o.key) \
                     AND h.key = o.key AND h.held_until IS NOT NULL ORDER BY h.seq LIMIT 1) \
                 ELSE o.held_until END AS until) AS u \
             WHERE (cardinality($1::bigint[]) = 0 OR o.seq = ANY ($1)) \
                 AND ($2::uuid IS NULL OR o.id = $2) AND ($3::text IS NULL OR ",
            state!(),
            " = $3) AND ($3 <> 'parked' OR $3 IS NULL OR o.parked_at IS NOT NULL) \
                 AND ($4::text IS NULL OR o.topic = $4) AND ($5::bytea IS NULL OR o.key = $5) AND o.seq > $6 "
        )
    };
}

const SELECT: &str = concat!(
    "SELECT ",
    event_columns!(),
    ", o.topic, o.consumer, o.tenant, o.error, ",
    state!(),
    " AS state, (date_part('epoch', COALESCE(o.published_at, o.parked_at, NULLIF(u.until, 'infinity'))) * 1000)::bigint \
         AS state_at_ms ",
    matching!(),
    "ORDER BY o.seq LIMIT $7"
);

/// Their attempts begin anew, so that a sink that gives up after some does not do so at once. What waits behind another
/// goes with it.
const RETRY: &str = concat!(
    "UPDATE oncebox_outbox SET parked_at = NULL, attempts = 0, \
         held_until = CASE WHEN held_until < 'infinity' THEN clock_timestamp() ELSE held_until END \
     WHERE seq IN (SELECT o.seq ",
    matching!(),
    "AND (o.parked_at IS NOT NULL OR u.until > statement_timestamp()) AND o.published_at IS NULL \
     ORDER BY o.seq LIMIT $7 FOR UPDATE OF o)"
);

const DROP: &str = concat!(
    "DELETE FROM oncebox_outbox WHERE seq IN (SELECT o.seq ",
    matching!(),
    "ORDER BY o.seq LIMIT $7 FOR UPDATE OF o)"
);

const PURGE: &str = "DELETE FROM oncebox_outbox WHERE seq IN (SELECT seq FROM oncebox_outbox \
     WHERE published_at <= now() - $1 * interval '1 millisecond' ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

/// A row whose time is over says nothing any more. A relay that was not heard of for a day does not come back.
const FORGET: [&str; 2] = [
    "DELETE FROM oncebox_sweep WHERE (name, row_key) IN (SELECT name, row_key FROM oncebox_sweep \
     WHERE quiet_until <= now() ORDER BY quiet_until LIMIT $1 FOR UPDATE SKIP LOCKED)",
    "DELETE FROM oncebox_relay WHERE relay IN (SELECT relay FROM oncebox_relay \
     WHERE seen_until <= now() - interval '1 day' LIMIT $1 FOR UPDATE SKIP LOCKED)",
];

impl PgStore {
    pub(super) async fn entries(&self, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
        let failed = || own("reading the outbox");
        let mut txn = self.begin_aside().await?;
        let rows = bound(SELECT, filter).fetch_all(&mut *txn).await.map_err(failed())?;
        txn.rollback().await;
        rows.iter().map(row::entry).collect::<Result<_, _>>().map_err(failed())
    }

    pub(super) async fn retry_matching(&self, filter: &EventFilter) -> StoreResult<u64> {
        let retried = self.change(bound(RETRY, filter), "retrying events").await?;
        if retried > 0 {
            events_committed();
        }
        Ok(retried)
    }

    pub(super) async fn drop_matching(&self, filter: &EventFilter) -> StoreResult<u64> {
        self.change(bound(DROP, filter), "dropping events").await
    }

    pub(super) async fn purge_outbox(&self, keep: Duration) -> StoreResult<u64> {
        let keep = milliseconds(keep);
        let mut purged = 0;
        loop {
            let step = self.query(PURGE).bind(keep).bind(STEP);
            let removed = self.patiently("purging events", self.change(step, "purging events")).await?;
            purged += removed;
            if removed < STEP.unsigned_abs() {
                break;
            }
        }
        for forget in FORGET {
            let context = "forgetting sweeps and relays";
            while self.patiently(context, self.change(self.query(forget).bind(STEP), context)).await?
                >= STEP.unsigned_abs()
            {}
        }
        self.free_left_behind().await?;
        Ok(purged)
    }

    async fn change(
        &self,
        statement: Query<'_, Postgres, PgArguments>,
        context: &'static str,
    ) -> StoreResult<u64> {
        let mut txn = self.begin_aside().await?;
        let done = statement.execute(&mut *txn).await.map_err(own(context))?;
        txn.commit(STILL_OPEN).await.map_err(own(context))?;
        Ok(done.rows_affected())
    }
}

/// Not prepared by name, so that the plan is made for the filters that are really there.
fn bound<'q>(sql: &'static str, filter: &'q EventFilter) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(sql)
        .persistent(false)
        .bind(&filter.seqs)
        .bind(filter.id)
        .bind(filter.state.map(EventState::as_str))
        .bind(&filter.topic)
        .bind(&filter.key)
        .bind(filter.after)
        .bind(i64::from(filter.limit))
}
