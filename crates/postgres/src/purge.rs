//! Retention.

use oncebox_core::{ConsumerName, ErrorClass, Purged, Retention, StoreError, StoreResult};
use sqlx::Row;

use crate::classify::own;
use crate::store::PgStore;
use crate::txn::PgTxn;

impl PgStore {
    pub(crate) async fn horizon_of(
        &self,
        txn: &mut PgTxn,
        consumer: &ConsumerName,
    ) -> StoreResult<Option<i64>> {
        let row = self
            .query(
                "SELECT (extract(epoch FROM purged_before) * 1000)::bigint FROM oncebox_horizon WHERE consumer = $1",
            )
            .bind(consumer.as_str())
            .fetch_optional(&mut **txn)
            .await
            .map_err(own("reading the horizon"))?;
        row.map(|row| row.try_get(0)).transpose().map_err(own("reading the horizon"))
    }

    pub(crate) async fn purge_pass(&self, _retention: &[Retention], _dry_run: bool) -> StoreResult<Purged> {
        Err(StoreError::new(ErrorClass::Failed, "purging", "not there yet"))
    }
}
