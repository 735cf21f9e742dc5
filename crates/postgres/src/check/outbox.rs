//! Whether somebody publishes what is in the outbox.

use oncebox_core::store::{Finding, StoreResult};
use sqlx::Row;

use crate::classify::Context;
use crate::store::PgStore;

const FACTS: &str = "SELECT EXISTS (SELECT FROM oncebox_outbox \
         WHERE published_at IS NULL AND parked_at IS NULL AND held_until IS NULL) \
         OR EXISTS (SELECT FROM oncebox_outbox WHERE held_until IS NOT NULL), \
     EXISTS (SELECT FROM oncebox_outbox WHERE parked_at IS NOT NULL), \
     (SELECT count(*) FROM oncebox_relay WHERE seen_until > clock_timestamp())";

/// Nothing about an outbox that nobody uses.
pub(super) async fn findings(store: &PgStore) -> StoreResult<Vec<Finding>> {
    let doing = "checking the outbox";
    let mut txn = store.begin_aside().await?;
    let exists: bool = store
        .query("SELECT to_regclass('oncebox_outbox') IS NOT NULL")
        .fetch_one(&mut *txn)
        .await
        .and_then(|row| row.try_get(0))
        .context(doing)?;
    if !exists {
        txn.rollback().await;
        return Ok(Vec::new());
    }
    sqlx::raw_sql("SET LOCAL enable_seqscan = off").execute(&mut *txn).await.context(doing)?;
    let row = store.query(FACTS).fetch_one(&mut *txn).await.context(doing)?;
    txn.rollback().await;
    let pending: bool = row.try_get(0).context(doing)?;
    let parked: bool = row.try_get(1).context(doing)?;
    let relays: i64 = row.try_get(2).context(doing)?;
    let mut findings = Vec::new();
    if pending && relays == 0 {
        findings.push(Finding::warning(
            "outbox",
            "events wait and no relay is alive: set outbox.relay = true and run `oncebox run`, or run a relay in \
             your own program",
        ));
    } else if relays > 0 {
        findings.push(Finding::ok("outbox", format!("{relays} relays alive")));
    }
    if parked {
        findings.push(Finding::warning(
            "outbox",
            "some events were given up: look at their errors, then retry or drop them",
        ));
    }
    Ok(findings)
}
