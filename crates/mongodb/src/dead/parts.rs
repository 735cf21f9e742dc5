//! Letters that do not fit into a document: their key, payload and headers lie in parts beside them.
//!
//! A document ends at 16 MB, and a message may be larger. The parts are written and removed in the transactions that write and
//! remove the letter, so a letter that is seen is seen whole.

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Result;
use oncebox_core::store::{
    ErrorClass, LetterContent, MAX_SUMMARY_BYTES, StoreError, StoreResult, headers_json,
};

use super::binary;
use crate::classify::Context;
use crate::position::whole;
use crate::tx::MongoTx;

const PARTS: &str = "oncebox_dead_part";
/// The largest part, and the most that a letter holds by itself.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// What a letter may hold by itself: its only content, or one of two, beside what it was before somebody changed it.
pub(super) const ALONE: usize = PART_BYTES;
pub(super) const BESIDE_ANOTHER: usize = PART_BYTES / 2;
/// The longest key that a letter holds by itself: a list of letters reads it.
const MAX_KEY_BYTES: usize = 64 * 1024;

/// The large fields of a letter: all in it, or all in parts, one behind the other.
pub(super) struct Cut<'a> {
    key: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
    headers: String,
    in_parts: bool,
}

impl<'a> Cut<'a> {
    pub(super) fn of(content: &'a LetterContent, room: usize) -> Self {
        let (key, payload) = (content.key.as_deref(), content.payload.as_deref());
        let headers = headers_json::to_pairs(&content.headers);
        let key_bytes = key.map_or(0, <[u8]>::len);
        let bytes = key_bytes + payload.map_or(0, <[u8]>::len) + headers.len();
        Self { key, payload, headers, in_parts: key_bytes > MAX_KEY_BYTES || bytes > room }
    }

    /// What the letter holds of them. The beginning of a long key stays, for those who read the list.
    pub(super) fn fields(&self) -> Document {
        let whole = |bytes: Option<&[u8]>| bytes.map(binary);
        if !self.in_parts {
            return doc! { "key": whole(self.key), "payload": whole(self.payload), "headers": &self.headers };
        }
        let length = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        let start = self.key.map(|key| binary(&key[..key.len().min(MAX_SUMMARY_BYTES)]));
        let lengths = doc! {
            "key": self.key.map(|key| length(key.len())),
            "payload": self.payload.map(|payload| length(payload.len())),
            "headers": length(self.headers.len()),
        };
        doc! { "key": start, "payload": Bson::Null, "headers": Bson::Null, "lengths": lengths }
    }
}

/// Writes the parts of a letter, if it has any, one by one.
pub(super) async fn write(tx: &mut MongoTx, number: i64, cut: &Cut<'_>) -> Result<()> {
    if !cut.in_parts {
        return Ok(());
    }
    let parts = tx.database.collection::<Document>(PARTS);
    let fields = [cut.key, cut.payload, Some(cut.headers.as_bytes())];
    let pieces = fields.into_iter().flatten().flat_map(|field| field.chunks(PART_BYTES));
    for (part, bytes) in (0_i32..).zip(pieces) {
        let part = doc! { "_id": { "number": number, "part": part }, "bytes": binary(bytes) };
        parts.insert_one(part).session(&mut tx.session).await?;
    }
    Ok(())
}

/// Puts the large fields back into a letter whose parts lie beside it.
pub(super) async fn restore(tx: &mut MongoTx, number: i64, letter: &mut Document) -> StoreResult<()> {
    let doing = format!("reading dead letter {}", number.abs());
    let broken = |why: &str| StoreError::new(ErrorClass::Failed, &*doing, why.to_owned());
    let Ok(lengths) = letter.get_document("lengths").cloned() else { return Ok(()) };
    let parts = tx.database.collection::<Document>(PARTS);
    let found = parts.find(of_letter(number)).sort(doc! { "_id": 1 }).session(&mut tx.session).await;
    let mut found = found.context(&doing)?;
    let mut found = found.stream(&mut tx.session);
    let mut bytes = Vec::new();
    while let Some(part) = found.try_next().await.context(&doing)? {
        bytes.extend(part.get_binary_generic("bytes").map_err(|_| broken("a part of it holds no bytes"))?);
    }
    let mut rest = bytes.as_slice();
    for field in ["key", "payload", "headers"] {
        let Some(length) = whole(lengths.get(field)) else { continue };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (value, after) = rest.split_at_checked(length).ok_or_else(|| {
            broken(
                "a part of it is missing in oncebox_dead_part: restore it from a backup, or drop the letter",
            )
        })?;
        let value = match field {
            "headers" => Bson::String(String::from_utf8_lossy(value).into_owned()),
            _ => Bson::Binary(binary(value)),
        };
        letter.insert(field, value);
        rest = after;
    }
    Ok(())
}

/// Removes the parts of these letters.
pub(super) async fn remove(tx: &mut MongoTx, numbers: &[i64]) -> Result<()> {
    // Most have none: one look tells which.
    let dead = tx.database.collection::<Document>(super::DEAD);
    let is_long = [doc! { "lengths": { "$exists": true } }, doc! { "original.lengths": { "$exists": true } }];
    let long = doc! { "_id": { "$in": numbers }, "$or": is_long };
    let mut long = dead.find(long).projection(doc! { "_id": 1 }).session(&mut tx.session).await?;
    let long: Vec<Document> = long.stream(&mut tx.session).try_collect().await?;
    for number in long.iter().filter_map(|letter| whole(letter.get("_id"))) {
        remove_all(tx, number).await?;
        remove_all(tx, of_original(number)).await?;
    }
    Ok(())
}

/// Removes all parts under this number.
pub(super) async fn remove_all(tx: &mut MongoTx, number: i64) -> Result<()> {
    let parts = tx.database.collection::<Document>(PARTS);
    parts.delete_many(of_letter(number)).session(&mut tx.session).await.map(|_| ())
}

/// The number under which the parts lie of what a letter was before somebody changed it.
pub(super) fn of_original(number: i64) -> i64 {
    -number
}

/// By the index of `_id`, which compares field by field.
fn of_letter(number: i64) -> Document {
    doc! { "_id": { "$gte": { "number": number, "part": 0 }, "$lte": { "number": number, "part": i32::MAX } } }
}
