//! Events that wait for nobody.
//!
//! Whoever takes the first held event of a key away makes the next one due. An operator who does it by hand does not, so the
//! housekeeping looks for them.

use oncebox_core::store::StoreResult;
use sqlx::Row;

use super::waiting::{behind, follow, held_like_o, keys_with_waiting};
use crate::classify::Context;
use crate::store::SqliteStore;

const LEFT_BEHIND: &str = concat!(
    "SELECT json_group_array(seq) FROM (
        SELECT o.seq FROM oncebox_outbox o INDEXED BY oncebox_outbox_due
        WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.held_until IS NOT NULL AND o.held_until = ",
    behind!(),
    " AND NOT EXISTS (SELECT 1 FROM ",
    held_like_o!(),
    " AND h.seq < o.seq) LIMIT 1000)"
);

/// Finds events that wait for one that somebody has removed by hand, and lets them go on.
pub(super) async fn free_left_behind(store: &SqliteStore) -> StoreResult<()> {
    let doing = "looking for events that wait for nobody";
    let mut conn = store.reader().await?;
    let row = sqlx::query(LEFT_BEHIND).fetch_one(&mut *conn).await.context(doing)?;
    let seqs: String = row.try_get(0).context(doing)?;
    drop(conn);
    if seqs == "[]" {
        return Ok(());
    }
    let mut txn = store.begin().await?;
    let keys = keys_with_waiting(&mut txn, &seqs).await.context(doing)?;
    follow(&mut txn, &keys).await.context(doing)?;
    txn.commit_own(doing).await
}
