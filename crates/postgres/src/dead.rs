//! Messages that were given up: written, found, replayed, dropped.

mod read;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId};
use oncebox_core::source::LogId;
use oncebox_core::store::{
    DeadFilter, DeadLetter, DeadSummary, ErrorClass, PositionKey, StoreError, StoreResult, StoredDeadLetter,
    headers_json,
};
use sqlx::Row;
use uuid::Uuid;

use crate::claim::now_ms;
use crate::classify::{after_handler, own};
use crate::store::PgStore;
use crate::txn::{AFTER_HANDLER, PgTxn, STILL_OPEN};

/// The longest error text that is kept.
const MAX_ERROR_BYTES: usize = 8 * 1024;

/// The only conflict there can be is on the index for letters without an id.
const PARK: &str = "INSERT INTO oncebox_dead (consumer, tenant, message_id, topic, partition, \"offset\", key, payload, \
         headers, timestamp_ms, error, attempts, log) \
     SELECT $1, d.tenant, d.message_id, d.topic, d.partition, d.at, d.key, d.payload, d.headers::json, d.timestamp_ms, \
         d.error, d.attempts, d.log \
     FROM unnest($2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::bytea[], $8::bytea[], $9::text[], \
         $10::bigint[], $11::text[], $12::int[], $13::text[]) WITH ORDINALITY \
         AS d(tenant, message_id, topic, partition, at, key, payload, headers, timestamp_ms, error, attempts, log, ord) \
     ORDER BY ord ON CONFLICT DO NOTHING";

const PARKED_KEYS: &str = "SELECT k FROM unnest($4::bytea[]) AS wanted(k) WHERE EXISTS (SELECT FROM oncebox_dead d \
     WHERE d.consumer = $1 AND d.topic = $2 AND d.partition = $3 AND sha256(d.key) = sha256(k) AND d.key = k)";

/// Not the row of another message: its receipt is of the same key, and not ours to touch.
const RENEW_RECEIPT: &str = "INSERT INTO oncebox_inbox AS i (key, processed_at, consumer, tenant, message_id) \
     VALUES ($1, GREATEST(now(), timestamptz 'epoch' + $2::bigint * interval '1 millisecond'), $3, $4, $5) \
     ON CONFLICT (key) DO UPDATE SET processed_at = GREATEST(i.processed_at, EXCLUDED.processed_at) \
         WHERE (i.consumer, i.tenant, i.message_id) = (EXCLUDED.consumer, EXCLUDED.tenant, EXCLUDED.message_id)";

const BEFORE: &str = "SELECT number FROM oncebox_dead WHERE consumer = $1 AND topic = $2 AND partition = $3 \
     AND sha256(key) = sha256($4) AND key = $4 AND number < $5 ORDER BY number LIMIT 1";

impl PgStore {
    pub(crate) async fn park_letters(
        &self,
        txn: &mut PgTxn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        if letters.is_empty() {
            return Ok(());
        }
        let failed = || after_handler("parking dead letters");
        sqlx::raw_sql(AFTER_HANDLER).execute(&mut **txn).await.map_err(failed())?;
        let column = |of: fn(&DeadLetter) -> &str| letters.iter().map(of).collect::<Vec<_>>();
        let bytes = |of: fn(&DeadLetter) -> Option<&[u8]>| letters.iter().map(of).collect::<Vec<_>>();
        self.query(PARK)
            .bind(consumer.as_str())
            .bind(column(|letter| letter.tenant.as_str()))
            .bind(column(|letter| letter.message_id.as_deref().unwrap_or_default()))
            .bind(column(|letter| &letter.record.topic))
            .bind(letters.iter().map(|letter| letter.record.partition).collect::<Vec<_>>())
            .bind(letters.iter().map(|letter| letter.record.offset).collect::<Vec<_>>())
            .bind(bytes(|letter| letter.record.key.as_deref()))
            .bind(bytes(|letter| letter.record.payload.as_deref()))
            .bind(
                letters
                    .iter()
                    .map(|letter| headers_json::to_pairs(&letter.record.headers))
                    .collect::<Vec<_>>(),
            )
            .bind(letters.iter().map(|letter| letter.record.timestamp_ms).collect::<Vec<_>>())
            .bind(letters.iter().map(|letter| storable_error(&letter.error)).collect::<Vec<_>>())
            .bind(
                letters
                    .iter()
                    .map(|letter| letter.attempts.try_into().unwrap_or(i32::MAX))
                    .collect::<Vec<i32>>(),
            )
            .bind(column(|letter| letter.record.log.as_ref().map_or("", LogId::as_str)))
            .execute(&mut **txn)
            .await
            .map_err(failed())?;
        Ok(())
    }

    pub(crate) async fn keys_with_letters(
        &self,
        txn: &mut PgTxn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self
            .query(PARKED_KEYS)
            .bind(position.consumer.as_str())
            .bind(&*position.topic)
            .bind(position.partition)
            .bind(keys)
            .fetch_all(&mut **txn)
            .await
            .map_err(own("looking for parked keys"))?;
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(own("reading parked keys"))
    }

    pub(crate) async fn take_letter(&self, number: i64) -> StoreResult<Option<(PgTxn, StoredDeadLetter)>> {
        let mut txn = self.begin().await?;
        // Deleting is what two replays of one letter meet at: the second waits, and then finds nothing.
        let taken = self
            .query(read::TAKE)
            .bind(number)
            .fetch_optional(&mut *txn)
            .await
            .map_err(own("taking a dead letter"))?;
        let Some(row) = taken else {
            txn.rollback().await;
            return Ok(None);
        };
        let stored = read::stored(&row)?;
        if let Some(id) = &stored.letter.message_id {
            self.renew_receipt(&mut txn, &stored, id).await?;
        }
        Ok(Some((txn, stored)))
    }

    /// From now on the retention counts anew: a copy may come as late as after any other message.
    async fn renew_receipt(&self, txn: &mut PgTxn, stored: &StoredDeadLetter, id: &str) -> StoreResult<()> {
        let broken = |e| StoreError::new(ErrorClass::Failed, "reading a dead letter", e);
        let consumer = ConsumerName::new(&*stored.consumer).map_err(broken)?;
        let id = MessageId::new(id).map_err(broken)?;
        let key = ReceiptKey::of(&consumer, &stored.letter.tenant, &id);
        self.query(RENEW_RECEIPT)
            .bind(Uuid::from_bytes(*key.as_bytes()))
            .bind(now_ms())
            .bind(consumer.as_str())
            .bind(stored.letter.tenant.as_str())
            .bind(id.as_str())
            .execute(&mut **txn)
            .await
            .map_err(own("writing the receipt of a dead letter"))?;
        Ok(())
    }

    pub(crate) async fn first_of_key_before(
        &self,
        txn: &mut PgTxn,
        taken: &StoredDeadLetter,
    ) -> StoreResult<Option<i64>> {
        let record = &taken.letter.record;
        let Some(key) = record.key.as_deref() else { return Ok(None) };
        let row = self
            .query(BEFORE)
            .bind(&taken.consumer)
            .bind(&*record.topic)
            .bind(record.partition)
            .bind(key)
            .bind(taken.number)
            .fetch_optional(&mut **txn)
            .await
            .map_err(own("looking for earlier dead letters"))?;
        row.map(|row| row.try_get(0)).transpose().map_err(own("looking for earlier dead letters"))
    }

    pub(crate) async fn list_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        let failed = || own("reading dead letters");
        let mut txn = self.begin_aside().await?;
        let rows = read::summaries(filter).fetch_all(&mut *txn).await.map_err(failed())?;
        txn.rollback().await;
        rows.iter().map(read::summary).collect::<Result<_, _>>().map_err(failed())
    }

    pub(crate) async fn read_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        let mut txn = self.begin_aside().await?;
        let row = self
            .query(read::ONE)
            .bind(number)
            .fetch_optional(&mut *txn)
            .await
            .map_err(own("reading a dead letter"))?;
        txn.rollback().await;
        row.as_ref().map(read::stored).transpose()
    }

    pub(crate) async fn drop_letters(&self, filter: &DeadFilter) -> StoreResult<u64> {
        let mut txn = self.begin_aside().await?;
        let done = read::delete(filter).execute(&mut *txn).await.map_err(own("dropping dead letters"))?;
        txn.commit(STILL_OPEN).await.map_err(own("dropping dead letters"))?;
        Ok(done.rows_affected())
    }
}

/// PostgreSQL's text holds no NUL, and nobody reads a megabyte of error.
pub(crate) fn storable_error(error: &str) -> String {
    let mut text = error.replace('\0', "");
    text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_cut_between_characters() {
        assert_eq!(storable_error("a\0b"), "ab");
        let long = "ü".repeat(MAX_ERROR_BYTES);
        let kept = storable_error(&format!("x{long}"));
        assert_eq!(kept.len(), MAX_ERROR_BYTES - 1);
    }
}
