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
use sqlx::Row;

use crate::adopted;
use crate::claim;
use crate::classify::Context;
use crate::store::PgStore;
use crate::txn::{AFTER_HANDLER, PgTxn};
use read::{bound, letter_columns, matching, stored, summary, summary_columns};

/// The longest error text that is kept.
const MAX_ERROR_BYTES: usize = 8 * 1024;

impl DeadLetters for PgStore {
    async fn park(
        &self,
        txn: &mut PgTxn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        /// The only conflict there can be is on the index for letters without an id.
        const PARK: &str = "INSERT INTO oncebox_dead (consumer, tenant, message_id, topic, partition, \"offset\", key, payload, \
                 headers, timestamp_ms, error, attempts, log, error_group) \
             SELECT $1, d.tenant, d.message_id, d.topic, d.partition, d.at, d.key, d.payload, d.headers::json, \
                 d.timestamp_ms, d.error, d.attempts, d.log, d.error_group \
             FROM unnest($2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::bytea[], $8::bytea[], \
                 $9::text[], $10::bigint[], $11::text[], $12::int[], $13::text[], $14::text[]) WITH ORDINALITY \
                 AS d(tenant, message_id, topic, partition, at, key, payload, headers, timestamp_ms, error, attempts, \
                 log, error_group, ord) \
             ORDER BY ord ON CONFLICT DO NOTHING";
        if letters.is_empty() {
            return Ok(());
        }
        let doing = "parking dead letters";
        self.patiently(doing, async {
            sqlx::raw_sql(AFTER_HANDLER).execute(&mut **txn).await.context_of_user(doing)?;
            self.query(PARK)
                .bind(consumer.as_str())
                .bind(column(letters, |letter| letter.tenant.as_str()))
                .bind(column(letters, |letter| letter.message_id.as_deref().unwrap_or_default()))
                .bind(column(letters, |letter| &*letter.record.topic))
                .bind(column(letters, |letter| letter.record.partition))
                .bind(column(letters, |letter| letter.record.offset))
                .bind(column(letters, |letter| letter.record.key.as_deref()))
                .bind(column(letters, |letter| letter.record.payload.as_deref()))
                .bind(column(letters, |letter| headers_json::to_pairs(&letter.record.headers)))
                .bind(column(letters, |letter| letter.record.timestamp_ms))
                .bind(column(letters, |letter| storable_error(&letter.error)))
                .bind(column(letters, |letter| i32::try_from(letter.attempts).unwrap_or(i32::MAX)))
                .bind(column(letters, |letter| letter.record.log.as_ref().map_or("", LogId::as_str)))
                .bind(column(letters, |letter| error_group(consumer.as_str(), &letter.error)))
                .execute(&mut **txn)
                .await
                .context_of_user(doing)?;
            Ok(())
        })
        .await
    }

    async fn parked_keys(
        &self,
        txn: &mut PgTxn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        const PARKED_KEYS: &str = "SELECT k FROM unnest($4::bytea[]) AS wanted(k) WHERE EXISTS (SELECT FROM oncebox_dead d \
             WHERE d.consumer = $1 AND d.topic = $2 AND d.partition = $3 AND sha256(d.key) = sha256(k) AND d.key = k)";
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let doing = "looking for parked keys";
        self.patiently(doing, async {
            let rows = self
                .query(PARKED_KEYS)
                .bind(position.consumer.as_str())
                .bind(&*position.topic)
                .bind(position.partition)
                .bind(keys)
                .fetch_all(&mut **txn)
                .await
                .context(doing)?;
            rows.iter().map(|row| row.try_get(0).context(doing)).collect()
        })
        .await
    }

    async fn take_dead(&self, number: i64) -> StoreResult<Option<(PgTxn, StoredDeadLetter)>> {
        const TAKE: &str =
            concat!("DELETE FROM oncebox_dead WHERE number = $1 RETURNING ", letter_columns!());
        let doing = "taking a dead letter";
        self.patiently(doing, async {
            let mut txn = self.begin().await?;
            // Deleting is what two replays of one letter meet at: the second waits, and then finds nothing.
            let row = self.query(TAKE).bind(number).fetch_optional(&mut *txn).await.context(doing)?;
            let Some(row) = row else {
                txn.rollback().await;
                return Ok(None);
            };
            let stored = stored(&row)?;
            if let Some(id) = &stored.letter.message_id {
                let broken =
                    |e| StoreError::new(ErrorClass::Failed, format!("reading dead letter {number}"), e);
                let consumer = ConsumerName::new(&*stored.consumer).map_err(broken)?;
                let id = MessageId::new(id.as_str()).map_err(broken)?;
                let tenant = &stored.letter.tenant;
                let key = ReceiptKey::of(&consumer, tenant, &id);
                let set = further_values(self, &stored.letter.record);
                let receipt = Claim {
                    key,
                    tenant: tenant.as_str(),
                    message_id: id.as_str(),
                    set: &set,
                    fingerprint: None,
                };
                match &self.inner.adopted {
                    Some(table) => adopted::renew(self, table, &mut txn, &consumer, receipt).await?,
                    None => claim::renew(self, &mut txn, &consumer, receipt).await?,
                }
            }
            Ok(Some((txn, stored)))
        })
        .await
    }

    async fn letter_before(&self, txn: &mut PgTxn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        const BEFORE: &str = "SELECT number FROM oncebox_dead WHERE consumer = $1 AND topic = $2 AND partition = $3 \
             AND sha256(key) = sha256($4) AND key = $4 AND number < $5 ORDER BY number LIMIT 1";
        let record = &taken.letter.record;
        let Some(key) = record.key.as_deref() else { return Ok(None) };
        let doing = "looking for an earlier letter of the key";
        self.patiently(doing, async {
            let row = self
                .query(BEFORE)
                .bind(&taken.consumer)
                .bind(&*record.topic)
                .bind(record.partition)
                .bind(key)
                .bind(taken.number)
                .fetch_optional(&mut **txn)
                .await
                .context(doing)?;
            row.map(|row| row.try_get(0)).transpose().context(doing)
        })
        .await
    }

    async fn dead_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        macro_rules! ordered {
            ($order:literal) => {
                concat!("SELECT ", summary_columns!(), " ", matching!(), " ORDER BY ", $order, " LIMIT $13")
            };
        }
        let list = match (filter.group.is_some(), filter.newest_first) {
            (false, false) => ordered!("number"),
            (false, true) => ordered!("number DESC"),
            (true, false) => ordered!("error_group, number"),
            (true, true) => ordered!("error_group DESC, number DESC"),
        };
        let doing = "reading dead letters";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let rows = bound(list, filter).fetch_all(&mut *txn).await.context(doing)?;
            txn.rollback().await;
            rows.iter().map(summary).collect::<sqlx::Result<_>>().context(doing)
        })
        .await
    }

    async fn dead_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        const ONE: &str = concat!("SELECT ", letter_columns!(), " FROM oncebox_dead WHERE number = $1");
        let doing = "reading a dead letter";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let row = self.query(ONE).bind(number).fetch_optional(&mut *txn).await.context(doing)?;
            txn.rollback().await;
            row.as_ref().map(stored).transpose()
        })
        .await
    }

    async fn drop_dead(&self, filter: &DeadFilter) -> StoreResult<u64> {
        macro_rules! ordered {
            ($order:literal) => {
                concat!(
                    "DELETE FROM oncebox_dead WHERE number IN (SELECT number ",
                    matching!(),
                    " ORDER BY ",
                    $order,
                    " LIMIT $13 FOR UPDATE)"
                )
            };
        }
        let drop = if filter.group.is_some() { ordered!("error_group, number") } else { ordered!("number") };
        let doing = "dropping dead letters";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let done = bound(drop, filter).execute(&mut *txn).await.context(doing)?;
            txn.commit_own(doing).await?;
            Ok(done.rows_affected())
        })
        .await
    }

    async fn count_replay(&self, consumer: &ConsumerName) -> StoreResult<()> {
        const COUNT: &str = "INSERT INTO oncebox_replayed AS r (consumer, replayed) VALUES ($1, 1) \
             ON CONFLICT (consumer) DO UPDATE SET replayed = r.replayed + 1";
        let doing = "counting a replay";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            self.query(COUNT).bind(consumer.as_str()).execute(&mut *txn).await.context(doing)?;
            txn.commit_own(doing).await
        })
        .await
    }

    async fn dead_groups(
        &self,
        consumer: Option<&str>,
        limit: u32,
        count_cap: u64,
    ) -> StoreResult<Vec<DeadGroup>> {
        let groups = groups::dead_groups(self, consumer, limit, count_cap);
        self.patiently("grouping dead letters", groups).await
    }

    async fn group_letters(&self, limit: u32) -> StoreResult<u64> {
        self.patiently("grouping dead letters", groups::group_letters(self, limit)).await
    }

    async fn edit_dead(
        &self,
        number: i64,
        times_seen: u32,
        content: &LetterContent,
        by: &str,
    ) -> StoreResult<bool> {
        self.patiently("changing a dead letter", edit::edit_dead(self, number, times_seen, content, by)).await
    }
}

fn column<'l, T>(letters: &'l [DeadLetter], of: impl Fn(&'l DeadLetter) -> T) -> Vec<T> {
    letters.iter().map(of).collect()
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
