//! Up to when receipts may go, per consumer.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{PurgePass, StoreResult};
use sqlx::{AssertSqlSafe, Row};

use crate::classify::Context;
use crate::store::{PgStore, Query};
use crate::time::LAST_MS;
use crate::txn::PgTxn;

/// The relation that [`Horizons::bind`] fills: consumer and the time before which its receipts may go.
pub(crate) const RELATION: &str = "(SELECT c AS consumer, timestamptz 'epoch' + us * interval '1 microsecond' AS before \
     FROM unnest($1::text[], $2::bigint[]) AS u(c, us))";

/// Consumers and their horizons, in microseconds since 1970.
#[derive(Debug)]
pub(crate) struct Horizons {
    consumers: Vec<String>,
    micros: Vec<i64>,
}

impl Horizons {
    pub(crate) fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// The earliest of them.
    pub(crate) fn earliest(&self) -> Option<i64> {
        self.micros.iter().min().copied()
    }

    /// Binds `$1` and `$2` for [`RELATION`].
    pub(crate) fn bind<'q>(&'q self, query: Query<'q>) -> Query<'q> {
        query.bind(&self.consumers).bind(&self.micros)
    }

    /// Writes down, in the transaction that removes receipts of these consumers, up to when they may be gone.
    pub(crate) async fn write(&self, store: &PgStore, txn: &mut PgTxn, of: &[String]) -> StoreResult<()> {
        if of.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "INSERT INTO oncebox_horizon AS o (consumer, purged_before) \
             SELECT h.consumer, h.before FROM {RELATION} h WHERE h.consumer = ANY ($3) \
             ON CONFLICT (consumer) DO UPDATE SET purged_before = GREATEST(o.purged_before, excluded.purged_before)"
        );
        let write = self.bind(store.query(AssertSqlSafe(sql))).bind(of);
        write.execute(&mut **txn).await.context("writing down the horizon")?;
        Ok(())
    }
}

/// Receipts older than this may be gone.
pub(super) async fn purged_before(
    store: &PgStore,
    txn: &mut PgTxn,
    consumer: &ConsumerName,
) -> StoreResult<Option<i64>> {
    const PURGED_BEFORE: &str =
        "SELECT (extract(epoch FROM purged_before) * 1000)::bigint FROM oncebox_horizon WHERE consumer = $1";
    let doing = "reading the horizon";
    let query = store.query(PURGED_BEFORE).bind(consumer.as_str());
    let row = query.fetch_optional(&mut **txn).await.context(doing)?;
    row.map(|row| row.try_get(0)).transpose().context(doing)
}

/// A thousand years. Nobody means a longer time, and PostgreSQL's dates end somewhere.
const MAX_KEEP_SECONDS: f64 = 3.2e10;

/// A partition that stands still, or was never caught up, holds the receipts that its next messages may need, unless an
/// operator has retired it. The earlier of two clocks counts, so that no single one that jumps empties the table. A consumer
/// without positions claims in a loop of its own; nobody knows its progress, so time counts.
const HORIZONS: &str = "SELECT r.consumer, (extract(epoch FROM LEAST(min(p.caught_up_at), clock_timestamp(), \
         timestamptz 'epoch' + $3::bigint * interval '1 millisecond') - make_interval(secs => r.keep)) * 1000000)::bigint \
     FROM unnest($1::text[], $2::float8[]) AS r(consumer, keep) \
     LEFT JOIN oncebox_position p ON p.consumer = r.consumer AND p.retired_at IS NULL \
     GROUP BY r.consumer, r.keep HAVING count(p.consumer) = count(p.caught_up_at)";

/// The horizon of each consumer, fixed for the pass.
pub(super) async fn horizons(store: &PgStore, pass: &PurgePass<'_>) -> StoreResult<Horizons> {
    let retention = pass.retention;
    let consumers: Vec<&str> = retention.iter().map(|one| one.consumer.as_str()).collect();
    let keep: Vec<f64> = retention.iter().map(|one| one.keep.as_secs_f64().min(MAX_KEEP_SECONDS)).collect();
    let doing = "computing the horizons";
    let mut txn = store.begin_aside().await?;
    let rows = store
        .query(HORIZONS)
        .bind(consumers)
        .bind(keep)
        .bind(pass.now_ms.clamp(0, LAST_MS))
        .fetch_all(&mut *txn)
        .await
        .context(doing)?;
    txn.rollback().await;
    let read = || -> sqlx::Result<Horizons> {
        Ok(Horizons {
            consumers: rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?,
            micros: rows.iter().map(|row| row.try_get(1)).collect::<sqlx::Result<_>>()?,
        })
    };
    read().context(doing)
}
