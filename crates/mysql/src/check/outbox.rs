//! Whether somebody publishes what is in the outbox.

use oncebox_core::store::Finding;
use sqlx::{MySqlConnection, Row};

const EXISTS: &str = "SELECT COUNT(*) FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name IN ('oncebox_outbox', 'oncebox_relay')";

const FACTS: &str = "SELECT EXISTS (SELECT 1 FROM oncebox_outbox WHERE ready_shard IS NOT NULL) \
         OR EXISTS (SELECT 1 FROM oncebox_outbox WHERE held_shard IS NOT NULL), \
     EXISTS (SELECT 1 FROM oncebox_outbox WHERE parked_at IS NOT NULL), \
     (SELECT COUNT(*) FROM oncebox_relay WHERE seen_until > UTC_TIMESTAMP(6))";

/// Nothing about an outbox that nobody uses.
pub(super) async fn findings(conn: &mut MySqlConnection) -> sqlx::Result<Vec<Finding>> {
    let tables: i64 = sqlx::query(EXISTS).fetch_one(&mut *conn).await?.try_get(0)?;
    if tables < 2 {
        return Ok(Vec::new());
    }
    let row = sqlx::query(FACTS).fetch_one(conn).await?;
    let (pending, parked, relays): (bool, bool, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
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
