//! Dead letters: written inside the transaction that gives the message up, read and taken back by an operator.

mod edit;
mod groups;
mod read;

use std::collections::HashMap;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId};
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Claim, DeadFilter, DeadGroup, DeadLetter, DeadLetters, DeadSummary, ErrorClass, LetterContent,
    PositionKey, StoreError, StoreResult, StoredDeadLetter, error_group, further_values, headers_json,
};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Row};

use crate::adopted;
use crate::claim;
use crate::classify::{Context, PACKET_TOO_LARGE, number_of};
use crate::quote::{push_bytes, text};
use crate::store::MysqlStore;
use crate::txn::{MysqlTxn, Trace};
use read::{letter_columns, matching, stored, summary, summary_columns};

/// The longest error text that is kept.
const MAX_ERROR_BYTES: usize = 8 * 1024;
/// Keys that are looked for in one message.
const MAX_KEYS: usize = 2000;

impl DeadLetters for MysqlStore {
    async fn park(
        &self,
        txn: &mut MysqlTxn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        /// One letter each, so that a packet is no larger than its message. The only key that can be there already is the one
        /// for letters without an id.
        const PARK: &str = "INSERT INTO oncebox_dead (consumer, tenant, message_id, topic, `partition`, `offset`, `key`, \
                 payload, headers, timestamp_ms, error, attempts, log, error_group) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE number = number";
        if letters.is_empty() {
            return Ok(());
        }
        let doing = "parking dead letters";
        let after_handler = AssertSqlSafe(self.after_handler().to_owned());
        sqlx::raw_sql(after_handler).execute(&mut **txn).await.context_of_user(doing)?;
        for letter in letters {
            let record = &letter.record;
            let park = self
                .query(PARK)
                .bind(consumer.as_str())
                .bind(letter.tenant.as_str())
                .bind(letter.message_id.as_deref().unwrap_or_default())
                .bind(&*record.topic)
                .bind(record.partition)
                .bind(record.offset)
                .bind(record.key.as_deref())
                .bind(record.payload.as_deref())
                .bind(headers_json::to_pairs(&record.headers))
                .bind(record.timestamp_ms)
                .bind(storable_error(&letter.error))
                .bind(i32::try_from(letter.attempts).unwrap_or(i32::MAX))
                .bind(record.log.as_ref().map_or("", LogId::as_str))
                .bind(error_group(consumer.as_str(), &letter.error));
            let parked = async {
                let parked = park.execute(&mut **txn).await;
                // It does not go with fewer messages: it is alone already.
                let too_large =
                    parked.as_ref().is_err_and(|error| number_of(error) == Some(PACKET_TOO_LARGE));
                let parked = parked.context_of_user(doing);
                if too_large {
                    parked.map_err(|error| error.with_class(ErrorClass::Environment))
                } else {
                    parked
                }
            };
            self.patiently(doing, parked).await?;
        }
        Ok(())
    }

    async fn parked_keys(
        &self,
        txn: &mut MysqlTxn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        let doing = "looking for parked keys";
        let mut parked = Vec::new();
        for keys in keys.chunks(MAX_KEYS) {
            // By their hashes: keys may be long, and there may be many.
            let wanted: HashMap<[u8; 32], &[u8]> = keys.iter().map(|key| (hash(key), *key)).collect();
            let sql = parked_among(position, wanted.keys());
            let found =
                async { sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut **txn).await.context(doing) };
            for row in self.patiently(doing, found).await? {
                let found: Vec<u8> = row.try_get(0).context(doing)?;
                let key = <[u8; 32]>::try_from(found).ok().and_then(|hash| wanted.get(&hash));
                parked.extend(key.map(|key| key.to_vec()));
            }
        }
        Ok(parked)
    }

    async fn take_dead(&self, number: i64) -> StoreResult<Option<(MysqlTxn, StoredDeadLetter)>> {
        /// What two replays of one letter meet at: the second waits, and then finds nothing.
        const TAKE: &str =
            concat!("SELECT ", letter_columns!(), " FROM oncebox_dead WHERE number = ? FOR UPDATE");
        const REMOVE: &str = "DELETE FROM oncebox_dead WHERE number = ?";
        let doing = "taking a dead letter";
        self.patiently(doing, async {
            let mut txn = self.begin().await?;
            txn.leaves(Trace::Letter(number));
            let row = self.query(TAKE).bind(number).fetch_optional(&mut *txn).await.context(doing)?;
            let Some(row) = row else {
                txn.rollback().await;
                return Ok(None);
            };
            let stored = stored(&row)?;
            self.query(REMOVE).bind(number).execute(&mut *txn).await.context(doing)?;
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

    async fn letter_before(&self, txn: &mut MysqlTxn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        const BEFORE: &str = "SELECT MIN(number) FROM oncebox_dead WHERE consumer = ? AND topic = ? AND `partition` = ? \
             AND key_hash = ? AND number < ?";
        let record = &taken.letter.record;
        let Some(key) = record.key.as_deref() else { return Ok(None) };
        let doing = "looking for an earlier letter of the key";
        self.patiently(doing, async {
            let row = self
                .query(BEFORE)
                .bind(&taken.consumer)
                .bind(&*record.topic)
                .bind(record.partition)
                .bind(hash(key).to_vec())
                .bind(taken.number)
                .fetch_one(&mut **txn)
                .await
                .context(doing)?;
            row.try_get(0).context(doing)
        })
        .await
    }

    async fn dead_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        let doing = "reading dead letters";
        let list = format!("SELECT {} FROM oncebox_dead {}", summary_columns!(), matching(filter));
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let rows = sqlx::raw_sql(AssertSqlSafe(list)).fetch_all(&mut *txn).await.context(doing)?;
            txn.rollback().await;
            rows.iter().map(summary).collect::<sqlx::Result<_>>().context(doing)
        })
        .await
    }

    async fn dead_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        const ONE: &str = concat!("SELECT ", letter_columns!(), " FROM oncebox_dead WHERE number = ?");
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
        let doing = "dropping dead letters";
        let drop = format!("DELETE FROM oncebox_dead {}", matching(filter));
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let done = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *txn).await.context(doing)?;
            txn.commit_own(doing).await?;
            Ok(done.rows_affected())
        })
        .await
    }

    async fn count_replay(&self, consumer: &ConsumerName) -> StoreResult<()> {
        const COUNT: &str = "INSERT INTO oncebox_replayed (consumer, replayed) VALUES (?, 1) \
             ON DUPLICATE KEY UPDATE replayed = replayed + 1";
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

/// What the column `key_hash` holds.
fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// The statement that finds which of these hashes are parked in the partition.
fn parked_among<'k>(position: &PositionKey, hashes: impl Iterator<Item = &'k [u8; 32]>) -> String {
    let mut sql = format!(
        "SELECT DISTINCT key_hash FROM oncebox_dead WHERE consumer = {} AND topic = {} AND `partition` = {} AND key_hash IN (",
        text(position.consumer.as_str()),
        text(&position.topic),
        position.partition
    );
    for (at, hash) in hashes.enumerate() {
        if at > 0 {
            sql.push(',');
        }
        push_bytes(&mut sql, hash);
    }
    sql.push(')');
    sql
}

/// Nobody reads a megabyte of error.
pub(crate) fn storable_error(error: &str) -> &str {
    &error[..error.floor_char_boundary(MAX_ERROR_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_cut_between_characters() {
        let long = "ü".repeat(MAX_ERROR_BYTES);
        assert_eq!(storable_error(&format!("x{long}")).len(), MAX_ERROR_BYTES - 1);
        assert_eq!(storable_error("short"), "short");
    }
}
