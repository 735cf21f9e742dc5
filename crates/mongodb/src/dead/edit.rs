//! A dead letter that an operator changes.

use bytes::Bytes;
use mongodb::bson::{Document, doc};
use oncebox_core::store::{LetterContent, StoreResult};

use super::parts::{self, Cut};
use super::{DEAD, binary, hash, whole_letter};
use crate::classify::Context;
use crate::rerun::rerun;
use crate::store::{MongoStore, server_now};
use crate::time::date;
use crate::tx::MongoTx;

const DOING: &str = "changing a dead letter";

/// Changes a letter, unless somebody else has changed it meanwhile.
pub(super) async fn edit_dead(
    store: &MongoStore,
    number: i64,
    times_seen: u32,
    content: &LetterContent,
    by: &str,
) -> StoreResult<bool> {
    let now = server_now(store, DOING).await?;
    rerun(store, async || {
        let mut txn = store.begin_aside().await?;
        match edit_once(&mut txn, number, times_seen, content, by, now).await {
            Ok(true) => txn.commit_own(DOING).await.map(|()| true),
            other => {
                txn.rollback().await;
                other
            }
        }
    })
    .await
}

/// What arrived is kept by the first change, and stays. Both contents together must fit into the document.
async fn edit_once(
    tx: &mut MongoTx,
    number: i64,
    times_seen: u32,
    content: &LetterContent,
    by: &str,
    now: i64,
) -> StoreResult<bool> {
    let Some(stored) = whole_letter(tx, number, DOING).await? else { return Ok(false) };
    let times = stored.edit.as_ref().map_or(0, |edit| edit.times);
    if times != times_seen {
        return Ok(false);
    }
    let mut set = doc! {
        "edits": i32::try_from(times).unwrap_or(i32::MAX).saturating_add(1), "edited_by": by, "edited_at": date(now),
        "key_hash": content.key.as_ref().map(|key: &Bytes| binary(&hash(key))),
    };
    if stored.edit.is_none() {
        let original = LetterContent::of(&stored.letter.record);
        let cut = Cut::of(&original, parts::BESIDE_ANOTHER);
        parts::write(tx, parts::of_original(number), &cut).await.context(DOING)?;
        set.insert("original", cut.fields());
    }
    parts::remove_all(tx, number).await.context(DOING)?;
    let cut = Cut::of(content, parts::BESIDE_ANOTHER);
    parts::write(tx, number, &cut).await.context(DOING)?;
    let fields = cut.fields();
    let mut change = doc! {};
    if !fields.contains_key("lengths") {
        change.insert("$unset", doc! { "lengths": "" });
    }
    set.extend(fields);
    change.insert("$set", set);
    let letters = tx.database.collection::<Document>(DEAD);
    let done = letters.update_one(doc! { "_id": number }, change).session(&mut tx.session).await;
    Ok(done.context(DOING)?.matched_count > 0)
}
