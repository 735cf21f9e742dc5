//! A dead letter that an operator changes.

use oncebox_core::store::{LetterContent, StoreResult, headers_json};

use crate::classify::Context;
use crate::store::MysqlStore;

/// What arrived is kept by the first change, and stays. From left to right, as the server sets them.
const EDIT: &str = "UPDATE oncebox_dead SET \
         original_key = IF(edits IS NULL, `key`, original_key), \
         original_payload = IF(edits IS NULL, payload, original_payload), \
         original_headers = IF(edits IS NULL, headers, original_headers), \
         `key` = ?, payload = ?, headers = ?, edited_by = ?, edited_at = UTC_TIMESTAMP(6), edits = COALESCE(edits, 0) + 1 \
     WHERE number = ? AND COALESCE(edits, 0) = ?";

/// Changes a letter, unless somebody else has changed it meanwhile.
pub(super) async fn edit_dead(
    store: &MysqlStore,
    number: i64,
    times_seen: u32,
    content: &LetterContent,
    by: &str,
) -> StoreResult<bool> {
    let doing = "changing a dead letter";
    let mut txn = store.begin_aside().await?;
    let edit = store
        .query(EDIT)
        .bind(content.key.as_deref())
        .bind(content.payload.as_deref())
        .bind(headers_json::to_pairs(&content.headers))
        .bind(by)
        .bind(number)
        .bind(times_seen);
    let done = edit.execute(&mut *txn).await.context(doing)?;
    txn.commit_own(doing).await?;
    Ok(done.rows_affected() > 0)
}
