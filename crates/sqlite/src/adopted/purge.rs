//! What purge and status have to know about an adopted table.

use oncebox_core::store::{ErrorClass, IdKind, StoreError, StoreResult};
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::statements::{iso, quoted, quoted_table};
use crate::purge::Receipts;
use crate::store::SqliteStore;

/// Where the receipts are and which of them may go; `None` if none ever are, because nobody knows how old they are.
pub(crate) async fn receipts(store: &SqliteStore, consumers: usize) -> StoreResult<Option<Receipts>> {
    let Some(adopted) = store.adopted.as_deref() else { return Ok(Some(Receipts::own())) };
    let table = adopted.table(store).await?;
    let adopt = &table.adopt;
    let Some(time) = adopt.processed_at_column().filter(|_| adopt.is_purged(&table.found)) else {
        return Ok(None);
    };
    if adopt.consumer_column().is_none() && consumers > 1 {
        let why = format!("the table {adopt} has no column for consumers, so it serves one consumer only");
        return Err(StoreError::new(ErrorClass::Failed, "purging receipts", why));
    }
    let column = |name: &str| format!("i.{}", quoted(name));
    let consumer = adopt.consumer_column().map_or_else(|| "h.consumer".to_owned(), column);
    let tenant = adopt
        .tenant_column()
        .map_or_else(|| "''".to_owned(), |name| format!("coalesce({}, '')", column(name)));
    let id = column(adopt.message_id_column());
    // A dead letter has its id as the message spelled it.
    let of_letter = match table.id {
        // So that the index of the letters can be used.
        IdKind::Text { .. } | IdKind::Bytes { .. } => {
            format!("d.message_id = CAST({id} AS TEXT) COLLATE BINARY")
        }
        IdKind::Uuid | IdKind::UuidHex => {
            format!("replace(lower(d.message_id), '-', '') = replace({id}, '-', '')")
        }
        IdKind::UuidBytes => format!("replace(lower(d.message_id), '-', '') = lower(hex({id}))"),
    };
    let expired = format!(
        "h.consumer = {consumer} AND {} < h.before AND NOT EXISTS (SELECT 1 FROM oncebox_dead d \
         WHERE d.consumer = h.consumer AND d.tenant = {tenant} AND {of_letter})",
        iso(time)
    );
    Ok(Some(Receipts::of_rows(&quoted_table(adopt), &expired)))
}

/// How many receipts there are: counted up to the cap, by the highest number of a row beyond.
pub(crate) async fn receipts_estimate(
    store: &SqliteStore,
    conn: &mut SqliteConnection,
    cap: i64,
) -> StoreResult<Option<sqlx::Result<u64>>> {
    let Some(adopted) = store.adopted.as_deref() else { return Ok(None) };
    let table = adopted.table(store).await?;
    let name = quoted_table(&table.adopt);
    let highest = if table.has_rowid { format!("(SELECT max(rowid) FROM {name})") } else { "0".to_owned() };
    let sql = format!(
        "SELECT CASE WHEN counted < ?1 THEN counted ELSE max(counted, {highest}) END \
         FROM (SELECT count(*) AS counted FROM (SELECT 1 FROM {name} LIMIT ?1))"
    );
    let row = sqlx::query(AssertSqlSafe(sql)).bind(cap).fetch_one(conn).await;
    Ok(Some(row.and_then(|row| row.try_get::<i64, _>(0)).map(i64::unsigned_abs)))
}
