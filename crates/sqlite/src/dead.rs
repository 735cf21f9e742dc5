//! Dead letters: written inside the transaction that gives the message up, read and taken back by an operator.

mod edit;
mod groups;
mod read;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId};
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Claim, DeadFilter, DeadGroup, DeadLetter, DeadLetters, DeadSummary, ErrorClass, LetterContent,
    PositionKey, StoreError, StoreResult, StoredDeadLetter, error_group, further_values, headers_json,
};
use sqlx::{QueryBuilder, Row};

use crate::adopted;
use crate::claim;
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::txn::SqliteTxn;
use read::{letter_columns, push_filter, stored, summary, summary_columns};

impl DeadLetters for SqliteStore {
    async fn park(
        &self,
        txn: &mut SqliteTxn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        const PARK: &str = r#"
            INSERT INTO oncebox_dead (consumer, tenant, message_id, topic, partition, "offset", key, payload, headers,
                                      timestamp_ms, error, attempts, log, error_group)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
            ON CONFLICT (consumer, topic, partition, "offset", log) WHERE message_id = '' DO NOTHING"#;
        for letter in letters {
            let record = &letter.record;
            sqlx::query(PARK)
                .bind(consumer.as_str())
                .bind(letter.tenant.as_str())
                .bind(letter.message_id.as_deref().unwrap_or_default())
                .bind(record.topic.as_ref())
                .bind(record.partition)
                .bind(record.offset)
                .bind(record.key.as_deref())
                .bind(record.payload.as_deref())
                .bind(headers_json::to_pairs(&record.headers))
                .bind(record.timestamp_ms)
                .bind(letter.error.as_str())
                .bind(letter.attempts)
                .bind(record.log.as_ref().map(LogId::as_str).unwrap_or_default())
                .bind(error_group(consumer.as_str(), &letter.error))
                .execute(&mut **txn)
                .await
                .context("parking dead letters")?;
        }
        Ok(())
    }

    async fn parked_keys(
        &self,
        txn: &mut SqliteTxn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        const PARKED_KEYS: &str = "SELECT DISTINCT key FROM oncebox_dead
            WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND key IN (SELECT unhex(value) FROM json_each(?4))";
        let doing = "looking for parked keys";
        let keys = serde_json::Value::from_iter(keys.iter().map(|key| hex(key)));
        let rows = sqlx::query(PARKED_KEYS)
            .bind(position.consumer.as_str())
            .bind(position.topic.as_ref())
            .bind(position.partition)
            .bind(keys.to_string())
            .fetch_all(&mut **txn)
            .await
            .context(doing)?;
        rows.iter().map(|row| row.try_get(0).context(doing)).collect()
    }

    async fn take_dead(&self, number: i64) -> StoreResult<Option<(SqliteTxn, StoredDeadLetter)>> {
        const TAKE: &str =
            concat!("DELETE FROM oncebox_dead WHERE number = ?1 RETURNING ", letter_columns!());
        let mut txn = self.begin().await?;
        let take = sqlx::query(TAKE).bind(number);
        let Some(row) = take.fetch_optional(&mut *txn).await.context("taking a dead letter")? else {
            txn.rollback().await;
            return Ok(None);
        };
        let stored = stored(&row)?;
        let tenant = &stored.letter.tenant;
        // Its receipt stands already, unless somebody deleted it by hand. An id that is not valid never had one.
        if let Some(id) = stored.letter.message_id.as_deref().and_then(|id| MessageId::new(id).ok()) {
            let consumer = ConsumerName::new(stored.consumer.as_str()).map_err(|error| {
                StoreError::new(ErrorClass::Failed, format!("reading dead letter {number}"), error)
            })?;
            let key = ReceiptKey::of(&consumer, tenant, &id);
            let set = further_values(self, &stored.letter.record);
            let receipt =
                Claim { key, tenant: tenant.as_str(), message_id: id.as_str(), set: &set, fingerprint: None };
            match self.adopted.as_deref() {
                Some(table) => adopted::renew(self, table, &mut txn, &consumer, receipt).await?,
                None => claim::renew(&mut txn, &consumer, receipt).await?,
            }
        }
        Ok(Some((txn, stored)))
    }

    async fn letter_before(&self, txn: &mut SqliteTxn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        const BEFORE: &str = "SELECT min(number) FROM oncebox_dead
            WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND key = ?4 AND number < ?5";
        let record = &taken.letter.record;
        let Some(key) = record.key.as_deref() else { return Ok(None) };
        let doing = "looking for an earlier letter of the key";
        let row = sqlx::query(BEFORE)
            .bind(taken.consumer.as_str())
            .bind(record.topic.as_ref())
            .bind(record.partition)
            .bind(key)
            .bind(taken.number)
            .fetch_one(&mut **txn)
            .await
            .context(doing)?;
        row.try_get(0).context(doing)
    }

    async fn dead_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        let doing = "reading dead letters";
        let mut query = QueryBuilder::new("SELECT ");
        query.push(summary_columns()).push(" FROM oncebox_dead");
        push_filter(&mut query, filter);
        let mut conn = self.reader().await?;
        let rows = query.build().persistent(false).fetch_all(&mut *conn).await.context(doing)?;
        rows.iter().map(summary).collect::<sqlx::Result<_>>().context(doing)
    }

    async fn dead_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        const ONE: &str = concat!("SELECT ", letter_columns!(), " FROM oncebox_dead WHERE number = ?1");
        let mut conn = self.reader().await?;
        let row = sqlx::query(ONE).bind(number).fetch_optional(&mut *conn).await;
        row.context("reading a dead letter")?.as_ref().map(stored).transpose()
    }

    async fn drop_dead(&self, filter: &DeadFilter) -> StoreResult<u64> {
        let doing = "dropping dead letters";
        let mut query =
            QueryBuilder::new("DELETE FROM oncebox_dead WHERE number IN (SELECT number FROM oncebox_dead");
        push_filter(&mut query, filter);
        query.push(")");
        let mut txn = self.begin().await?;
        let done = query.build().persistent(false).execute(&mut *txn).await.context(doing)?;
        txn.commit_own(doing).await?;
        Ok(done.rows_affected())
    }

    async fn count_replay(&self, consumer: &ConsumerName) -> StoreResult<()> {
        const COUNT: &str = "INSERT INTO oncebox_replayed (consumer, replayed) VALUES (?1, 1)
            ON CONFLICT (consumer) DO UPDATE SET replayed = replayed + 1";
        let doing = "counting a replay";
        let mut txn = self.begin().await?;
        sqlx::query(COUNT).bind(consumer.as_str()).execute(&mut *txn).await.context(doing)?;
        txn.commit_own(doing).await
    }

    async fn dead_groups(
        &self,
        consumer: Option<&str>,
        limit: u32,
        count_cap: u64,
    ) -> StoreResult<Vec<DeadGroup>> {
        groups::dead_groups(self, consumer, limit, count_cap).await
    }

    async fn group_letters(&self, limit: u32) -> StoreResult<u64> {
        groups::group_letters(self, limit).await
    }

    async fn edit_dead(
        &self,
        number: i64,
        times_seen: u32,
        content: &LetterContent,
        by: &str,
    ) -> StoreResult<bool> {
        edit::edit_dead(self, number, times_seen, content, by).await
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
