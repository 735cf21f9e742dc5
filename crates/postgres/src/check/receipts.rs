//! Whether the partitions of the receipts are as they should be.

use oncebox_core::{Finding, StoreResult};
use sqlx::Row;

use super::{ok, warning};
use crate::classify::own;
use crate::store::PgStore;

/// Purge adds a week; fewer days than this say that it does not run.
const FEWEST_DAYS: i64 = 3;

const DAYS_AHEAD: &str = "SELECT count(*) FILTER (WHERE p.relname ~ '^oncebox_inbox_[0-9]{8}$' \
         AND right(p.relname, 8) > to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) \
     FROM pg_class c LEFT JOIN pg_inherits i ON i.inhparent = c.oid LEFT JOIN pg_class p ON p.oid = i.inhrelid \
     WHERE c.oid = to_regclass('oncebox_inbox') AND c.relkind = 'p' GROUP BY c.oid";

impl PgStore {
    /// Nothing if the receipts are in one table.
    pub(super) async fn about_partitions(&self) -> StoreResult<Vec<Finding>> {
        let failed = || own("checking the partitions");
        let mut txn = self.begin_aside().await?;
        let ahead = self.query(DAYS_AHEAD).fetch_optional(&mut *txn).await.map_err(failed())?;
        let Some(ahead) = ahead else {
            txn.rollback().await;
            return Ok(Vec::new());
        };
        let ahead: i64 = ahead.try_get(0).map_err(failed())?;
        let outside: bool = self
            .query("SELECT EXISTS (SELECT FROM oncebox_inbox_default)")
            .fetch_one(&mut *txn)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(failed())?;
        txn.rollback().await;
        let mut findings = vec![if ahead < FEWEST_DAYS {
            warning(
                "receipt partitions",
                format!("only {ahead} days ahead: does purge run? It adds the next days"),
            )
        } else {
            ok("receipt partitions", format!("{ahead} days ahead"))
        }];
        if outside {
            findings.push(warning(
                "receipt partitions",
                "some receipts lie outside of the known days, because the time in their ids is long past or far ahead; \
                 they are purged one by one. Look at the clocks of the producers if there are many",
            ));
        }
        Ok(findings)
    }
}
