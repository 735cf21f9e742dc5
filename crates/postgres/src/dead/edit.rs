//! A dead letter that an operator changes.

use oncebox_core::store::{LetterContent, StoreResult, headers_json};

use crate::classify::Context;
use crate::store::PgStore;

/// What arrived is kept by the first change, and stays.
const EDIT: &str = "UPDATE oncebox_dead SET \
         original_key = CASE WHEN edits IS NULL THEN key ELSE original_key END, \
         original_payload = CASE WHEN edits IS NULL THEN payload ELSE original_payload END, \
         original_headers = CASE WHEN edits IS NULL THEN headers ELSE original_headers END, \
         key = $3, payload = $4, headers = $5::json, \
         edits = COALESCE(edits, 0) + 1, edited_at = clock_timestamp(), edited_by = $6 \
     WHERE number = $1 AND COALESCE(edits, 0) = $2";

/// Changes a letter, unless somebody else has changed it meanwhile.
pub(super) async fn edit_dead(
    store: &PgStore,
    number: i64,
    times_seen: u32,
    content: &LetterContent,
    by: &str,
) -> StoreResult<bool> {
    let doing = "changing a dead letter";
    let mut txn = store.begin_aside().await?;
    let done = store
        .query(EDIT)
        .bind(number)
        .bind(i32::try_from(times_seen).unwrap_or(i32::MAX))
        .bind(content.key.as_deref())
        .bind(content.payload.as_deref())
        .bind(headers_json::to_pairs(&content.headers))
        .bind(by)
        .execute(&mut *txn)
        .await
        .context(doing)?;
    txn.commit_own(doing).await?;
    Ok(done.rows_affected() > 0)
}
