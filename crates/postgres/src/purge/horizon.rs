//! Up to when receipts may go, per consumer.

use oncebox_core::store::{PurgePass, StoreResult};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Postgres, Row};

use crate::classify::own;
use crate::store::PgStore;
use crate::txn::PgTxn;

/// A thousand years: longer is for ever, and PostgreSQL's dates end somewhere.
const FOR_EVER_SECONDS: f64 = 3.2e10;

/// A partition that stands still, or was never caught up, holds the receipts that its next messages may need, unless an
/// operator has retired it. The earlier of two clocks counts, so that no single one that jumps empties the table. A consumer
/// without positions claims in a loop of its own; nobody knows its progress, so time counts.
const HORIZONS: &str = "SELECT r.consumer, (extract(epoch FROM LEAST(min(p.caught_up_at), clock_timestamp(), \
         timestamptz 'epoch' + $3::bigint * interval '1 millisecond') - make_interval(secs => r.keep)) * 1000000)::bigint \
     FROM unnest($1::text[], $2::float8[]) AS r(consumer, keep) \
     LEFT JOIN oncebox_position p ON p.consumer = r.consumer AND p.retired_at IS NULL \
     GROUP BY r.consumer, r.keep HAVING count(p.consumer) = count(p.caught_up_at)";

/// Years that PostgreSQL can subtract a thousand from, and hold.
const TIMES_MS: std::ops::RangeInclusive<i64> = 0..=253_402_300_799_999;

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
    pub(crate) fn bind<'q>(
        &'q self,
        query: Query<'q, Postgres, PgArguments>,
    ) -> Query<'q, Postgres, PgArguments> {
        query.bind(&self.consumers).bind(&self.micros)
    }
}

impl PgStore {
    pub(super) async fn horizons(&self, pass: &PurgePass<'_>) -> StoreResult<Horizons> {
        let retention = pass.retention;
        let consumers: Vec<&str> = retention.iter().map(|one| one.consumer.as_str()).collect();
        let keep: Vec<f64> =
            retention.iter().map(|one| one.keep.as_secs_f64().min(FOR_EVER_SECONDS)).collect();
        let mut txn = self.begin_aside().await?;
        let rows = self
            .query(HORIZONS)
            .bind(consumers)
            .bind(keep)
            .bind(pass.now_ms.clamp(*TIMES_MS.start(), *TIMES_MS.end()))
            .fetch_all(&mut *txn)
            .await
            .map_err(own("computing the horizons"))?;
        txn.rollback().await;
        let read = || -> Result<Horizons, sqlx::Error> {
            Ok(Horizons {
                consumers: rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?,
                micros: rows.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?,
            })
        };
        read().map_err(own("computing the horizons"))
    }

    /// Writes down, in the transaction that removes receipts of these consumers, up to when they may be gone.
    pub(crate) async fn write_horizons(
        &self,
        txn: &mut PgTxn,
        horizons: &Horizons,
        of: &[String],
    ) -> StoreResult<()> {
        if of.is_empty() {
            return Ok(());
        }
        let sql = sqlx::AssertSqlSafe(format!(
            "INSERT INTO oncebox_horizon AS o (consumer, purged_before) \
             SELECT h.consumer, h.before FROM {RELATION} h WHERE h.consumer = ANY ($3) \
             ON CONFLICT (consumer) DO UPDATE SET purged_before = GREATEST(o.purged_before, excluded.purged_before)"
        ));
        horizons
            .bind(self.query(sql))
            .bind(of)
            .execute(&mut **txn)
            .await
            .map_err(own("writing down the horizon"))?;
        Ok(())
    }
}
