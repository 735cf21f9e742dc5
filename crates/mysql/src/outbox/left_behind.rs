//! Events that wait for nobody.
//!
//! Whoever takes the first held event of a key away makes the next one due. An operator who does it by hand does not, so the
//! housekeeping looks for keys whose first held event waits for another.

use oncebox_core::outbox::events_committed;
use oncebox_core::store::StoreResult;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::fetch;
use super::waiting::{HeldKey, behind, make_due};
use crate::classify::Context;
use crate::quote::push_bytes;
use crate::store::MysqlStore;

/// How many events one step looks at.
const STEP_EVENTS: usize = 1000;

const DOING: &str = "looking for events that wait for nobody";

/// Finds events that wait for one that is gone, and lets them go on.
pub(super) async fn free_left_behind(store: &MysqlStore) -> StoreResult<()> {
    let mut after = Some(HeldKey::new());
    while let Some(key) = after {
        after = store.patiently(DOING, free_after(store, key)).await?;
    }
    Ok(())
}

/// One step; `None` after the last key. It sees the first event of each key that begins in it, and the next step goes on behind
/// its last key: so a key with a million events costs no more than one step.
async fn free_after(store: &MysqlStore, key: HeldKey) -> StoreResult<Option<HeldKey>> {
    let mut txn = store.begin_aside().await?;
    let rows = fetch(&mut txn, held_after(&key)).await.context(DOING)?;
    let (waiting, last) = left_behind(&rows, key).context(DOING)?;
    let freed = make_due(&mut txn, &waiting).await.context(DOING)?;
    txn.commit_own(DOING).await?;
    if freed > 0 {
        tracing::info!(freed, "let events go on that waited for nobody");
        events_committed();
    }
    Ok((rows.len() >= STEP_EVENTS).then_some(last))
}

/// The held events of the next keys.
fn held_after(key: &[u8]) -> String {
    let mut after = String::new();
    push_bytes(&mut after, key);
    format!(
        concat!(
            "SELECT held_key, seq, held_until = ",
            behind!(),
            " FROM oncebox_outbox FORCE INDEX (oncebox_outbox_held) WHERE held_key > {} \
             ORDER BY held_key, seq LIMIT {}"
        ),
        after, STEP_EVENTS
    )
}

/// Those that come first for their key and wait, and the last key.
fn left_behind(rows: &[MySqlRow], mut key: HeldKey) -> sqlx::Result<(Vec<i64>, HeldKey)> {
    let mut waiting = Vec::new();
    for row in rows {
        let of_row: HeldKey = row.try_get(0)?;
        if of_row != key && row.try_get::<i64, _>(2)? != 0 {
            waiting.push(row.try_get(1)?);
        }
        key = of_row;
    }
    Ok((waiting, key))
}
