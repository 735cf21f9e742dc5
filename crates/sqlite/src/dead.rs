//! Dead letters: written inside the transaction that gives the message up, read and taken back by an operator.

mod read;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId};
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Claim, DeadFilter, DeadLetter, DeadSummary, ErrorClass, PositionKey, StoreError, StoreResult,
    StoredDeadLetter, headers_json,
};
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::claim;
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::txn::SqliteTxn;
use crate::writer::Writer;
use read::{columns, stored, summary, summary_columns};

const PARK: &str = r#"
    INSERT INTO oncebox_dead (consumer, tenant, message_id, topic, partition, "offset", key, payload, headers,
                              timestamp_ms, error, attempts, log)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT (consumer, topic, partition, "offset", log) WHERE message_id = '' DO NOTHING"#;

const PARKED_KEYS: &str = "SELECT DISTINCT key FROM oncebox_dead
    WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND key IN (SELECT unhex(value) FROM json_each(?4))";

const LETTER_BEFORE: &str = "SELECT min(number) FROM oncebox_dead
    WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND key = ?4 AND number < ?5";

const ONE: &str = concat!("SELECT ", columns!(), " FROM oncebox_dead WHERE number = ?1");

const TAKE: &str = concat!("DELETE FROM oncebox_dead WHERE number = ?1 RETURNING ", columns!());

/// Writes letters.
pub(crate) async fn park(
    txn: &mut SqliteTxn,
    consumer: &ConsumerName,
    letters: &[DeadLetter],
) -> StoreResult<()> {
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
            .execute(&mut **txn)
            .await
            .context("writing a dead letter")?;
    }
    Ok(())
}

/// Which of these keys have a letter in this partition.
pub(crate) async fn parked_keys(
    txn: &mut SqliteTxn,
    position: &PositionKey,
    keys: &[&[u8]],
) -> StoreResult<Vec<Vec<u8>>> {
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

/// Opens a transaction and removes a letter in it. Its receipt stands already, unless somebody deleted it by hand; it
/// becomes as young as a new one, because the effect that it stands for is.
pub(crate) async fn take(writer: &Writer, number: i64) -> StoreResult<Option<(SqliteTxn, StoredDeadLetter)>> {
    let mut txn = writer.begin().await?;
    let row =
        sqlx::query(TAKE).bind(number).fetch_optional(&mut *txn).await.context("taking a dead letter")?;
    let Some(row) = row else {
        txn.rollback().await;
        return Ok(None);
    };
    let stored = stored(&row)?;
    let tenant = &stored.letter.tenant;
    // An id that is no valid id never had a receipt.
    if let Some(id) = stored.letter.message_id.as_deref().and_then(|id| MessageId::new(id).ok()) {
        let consumer = ConsumerName::new(stored.consumer.as_str()).map_err(|error| {
            StoreError::new(ErrorClass::Failed, format!("reading dead letter {number}"), error)
        })?;
        let key = ReceiptKey::of(&consumer, tenant, &id);
        let receipt = Claim { key, tenant: tenant.as_str(), message_id: id.as_str() };
        claim::renew(&mut txn, &consumer, receipt).await?;
    }
    Ok(Some((txn, stored)))
}

/// Letters by filter, ordered by number.
pub(crate) async fn list(store: &SqliteStore, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
    let doing = "reading dead letters";
    let mut query = QueryBuilder::new("SELECT ");
    query.push(summary_columns()).push(" FROM oncebox_dead");
    push_filter(&mut query, filter);
    let mut conn = store.reader().await?;
    let rows = query.build().persistent(false).fetch_all(&mut *conn).await.context(doing)?;
    rows.iter().map(summary).collect::<sqlx::Result<_>>().context(doing)
}

/// One letter, whole.
pub(crate) async fn one(store: &SqliteStore, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
    let mut conn = store.reader().await?;
    let row =
        sqlx::query(ONE).bind(number).fetch_optional(&mut *conn).await.context("reading a dead letter")?;
    row.as_ref().map(stored).transpose()
}

/// The first letter of the same key in the same partition that was written before this one.
pub(crate) async fn letter_before(txn: &mut SqliteTxn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
    let doing = "looking for an earlier letter of the key";
    let record = &taken.letter.record;
    let Some(key) = &record.key else { return Ok(None) };
    let row = sqlx::query(LETTER_BEFORE)
        .bind(taken.consumer.as_str())
        .bind(record.topic.as_ref())
        .bind(record.partition)
        .bind(key.as_ref())
        .bind(taken.number)
        .fetch_one(&mut **txn)
        .await
        .context(doing)?;
    row.try_get(0).context(doing)
}

/// Removes letters for good; their receipts stay.
pub(crate) async fn drop(writer: &Writer, filter: &DeadFilter) -> StoreResult<u64> {
    let mut query =
        QueryBuilder::new("DELETE FROM oncebox_dead WHERE number IN (SELECT number FROM oncebox_dead");
    push_filter(&mut query, filter);
    query.push(")");
    let mut txn = writer.begin().await?;
    let done = query.build().persistent(false).execute(&mut *txn).await.context("removing dead letters")?;
    txn.commit(None).await?;
    Ok(done.rows_affected())
}

/// The conditions that are asked for and no others. An id is found by its index. The `+` keeps SQLite from an index for the
/// others: it would collect all letters of a consumer to sort them, where the next page is just the next rows.
fn push_filter(query: &mut QueryBuilder<Sqlite>, filter: &DeadFilter) {
    query.push(" WHERE number > ").push_bind(filter.after);
    if !filter.numbers.is_empty() {
        let numbers = serde_json::Value::from(filter.numbers.clone()).to_string();
        query.push(" AND number IN (SELECT value FROM json_each(").push_bind(numbers).push("))");
    }
    let texts = [
        (" AND +consumer = ", &filter.consumer),
        (" AND +topic = ", &filter.topic),
        (" AND +tenant = ", &filter.tenant),
        (" AND message_id = ", &filter.message_id),
    ];
    for (condition, text) in texts {
        if let Some(text) = text {
            query.push(condition).push_bind(text.clone());
        }
    }
    if let Some(key) = &filter.key {
        query.push(" AND key = ").push_bind(key.clone());
    }
    query.push(" ORDER BY number LIMIT ").push_bind(filter.limit);
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
