//! Whether somebody publishes what is in the outbox.

use oncebox_core::store::Finding;
use sqlx::{Row, SqliteConnection};

use crate::outbox::{is_held, is_ready};
use crate::time::now;

// What is pending, and who is there to publish it.
const FACTS: &str = concat!(
    "SELECT EXISTS (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_ready WHERE ",
    is_ready!(),
    ") OR EXISTS (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_due WHERE ",
    is_held!(),
    "), (SELECT count(*) FROM oncebox_relay WHERE seen_until > ",
    now!(),
    ")"
);

pub(super) async fn finding(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    let row = sqlx::query(FACTS).fetch_one(conn).await?;
    let (pending, relays): (bool, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(match (pending, relays) {
        (true, 0) => Finding::warning(
            "outbox",
            "events wait to be published and no relay is alive; run one (`relay = true` in [outbox], then `oncebox run`)",
        ),
        (_, 0) => Finding::ok("outbox", "no events wait; no relay is alive"),
        (_, relays) => Finding::ok("outbox", format!("relays alive: {relays}")),
    })
}
