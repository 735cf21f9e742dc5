//! Receipts in an adopted table: written first, all of a batch together.

use std::collections::{HashMap, HashSet};

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    AdoptedBatch, AdoptedRow, Claim, ErrorClass, FoundReceipt, IdKind, Met, Refused, StoreError, StoreResult,
    StoredId,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::{Adopted, Table};
use crate::claim::ensure_transaction;
use crate::classify::{Context, class_of_statement};
use crate::store::{Query, SqliteStore};
use crate::txn::SqliteTxn;
use crate::wording::said;

const DOING: &str = "claiming receipts";

/// Writes the receipts: which of them were not there before, and which the table cannot hold or takes for others.
pub(crate) async fn claim(
    store: &SqliteStore,
    adopted: &Adopted,
    conn: &mut SqliteConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<(Vec<bool>, Vec<Refused>)> {
    if claims.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    adopted.ensure_holds(&table, consumer)?;
    match claim_in(&table, conn, consumer, claims).await {
        Err(error) => Err(adopted.look_again_after(store, error).await),
        claimed => claimed,
    }
}

/// [`claim`] in a transaction of somebody else.
pub(crate) async fn claim_within(
    store: &SqliteStore,
    adopted: &Adopted,
    conn: &mut SqliteConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    ensure_transaction(conn).await?;
    let (fresh, not_taken) = claim(store, adopted, conn, consumer, claims).await?;
    match not_taken.first() {
        Some(Refused { at, why }) => {
            let why = format!("message {:?}: {why}", claims[*at].message_id);
            Err(StoreError::new(ErrorClass::Failed, DOING, why))
        }
        None => Ok(fresh),
    }
}

async fn claim_in(
    table: &Table,
    conn: &mut SqliteConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<(Vec<bool>, Vec<Refused>)> {
    let batch = AdoptedBatch::new(&table.adopt, table.id, &table.required, claims);
    let mut written = HashSet::with_capacity(batch.rows.len());
    if !batch.rows.is_empty() {
        let insert = bound(&table.statements.insert, consumer, batch.rows.iter());
        let inserted = match insert.fetch_all(&mut *conn).await {
            Ok(rows) => rows,
            // The values of a message may be what the table does not take, or a trigger of the application.
            Err(error) => {
                let class = class_of_statement(conn, &table.statements.insert, &error).await;
                return Err(said(class, DOING, error));
            }
        };
        for row in inserted {
            let tenant: String = row.try_get(1).context(DOING)?;
            written.insert((stored_id(table.id, &row).context(DOING)?, tenant));
        }
    }
    let mut met_by = HashMap::new();
    let known = batch.known(&written);
    if !known.is_empty() {
        let sent = known.iter().map(|place| &batch.rows[*place]);
        let query = bound(&table.statements.met, consumer, sent);
        for row in query.fetch_all(conn).await.context(DOING)? {
            let (nth, met) = met(&row).context(DOING)?;
            if let Some(place) = usize::try_from(nth).ok().and_then(|nth| known.get(nth)) {
                met_by.insert(*place, met);
            }
        }
    }
    let changed = |why| StoreError::new(ErrorClass::Environment, DOING, why);
    batch.answer(&table.adopt, &written, &met_by).map_err(changed)
}

/// The receipt of a message, if the table has it.
pub(crate) async fn find_receipt(
    store: &SqliteStore,
    adopted: &Adopted,
    conn: &mut SqliteConnection,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<Option<FoundReceipt>> {
    let doing = "looking for a receipt";
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    let claims = [claim];
    let batch = AdoptedBatch::new(&table.adopt, table.id, &[], &claims);
    // What the table cannot hold it does not have.
    if batch.rows.is_empty() {
        return Ok(None);
    }
    let look = bound(&table.statements.met, consumer, batch.rows.iter());
    for row in look.fetch_all(conn).await.context(doing)? {
        if met(&row).context(doing)?.1 == Met::Own {
            return Ok(Some(FoundReceipt { processed_at_ms: row.try_get_unchecked(5).context(doing)? }));
        }
    }
    Ok(None)
}

/// Writes a receipt, or makes the one that exists as young as a new one.
pub(crate) async fn renew(
    store: &SqliteStore,
    adopted: &Adopted,
    txn: &mut SqliteTxn,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<()> {
    let doing = "renewing a receipt";
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    let claims = [claim];
    let batch = AdoptedBatch::new(&table.adopt, table.id, &[], &claims);
    if batch.rows.is_empty() {
        let why =
            format!("the table {} cannot hold the receipt of message {:?}", table.adopt, claim.message_id);
        return Err(StoreError::new(ErrorClass::Failed, doing, why));
    }
    let renew = bound(&table.statements.renew, consumer, batch.rows.iter());
    match renew.execute(&mut **txn).await.context(doing) {
        Err(error) => Err(adopted.look_again_after(store, error).await),
        Ok(_) => Ok(()),
    }
}

/// A statement with its two parameters.
fn bound<'r>(sql: &str, consumer: &ConsumerName, rows: impl Iterator<Item = &'r AdoptedRow<'r>>) -> Query {
    let values = |row: &AdoptedRow<'_>| {
        let set = row.claim.set.iter().map(|value| value.clone().into());
        let named = [as_json(&row.id), row.claim.tenant.into()];
        serde_json::Value::from_iter(named.into_iter().chain(set))
    };
    let rows = serde_json::Value::from_iter(rows.map(values)).to_string();
    sqlx::query(AssertSqlSafe(sql.to_owned())).bind(rows).bind(consumer.as_str().to_owned())
}

/// Bytes travel as hex digits.
fn as_json(id: &StoredId) -> serde_json::Value {
    match id {
        StoredId::Text(text) => text.as_str().into(),
        StoredId::Uuid(id) => id.to_string().into(),
        StoredId::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
    }
}

/// The id in the first column.
pub(super) fn stored_id(id: IdKind, row: &SqliteRow) -> sqlx::Result<StoredId> {
    Ok(match id {
        IdKind::UuidBytes | IdKind::Bytes { .. } => StoredId::Bytes(row.try_get_unchecked(0)?),
        IdKind::Text { .. } | IdKind::UuidHex => StoredId::Text(row.try_get_unchecked(0)?),
        IdKind::Uuid => {
            let text: String = row.try_get_unchecked(0)?;
            uuid::Uuid::try_parse(&text).map_or(StoredId::Text(text), StoredId::Uuid)
        }
    })
}

/// The place of a claim that the table did not take, and whose receipt is there.
fn met(row: &SqliteRow) -> sqlx::Result<(i64, Met)> {
    let text = |at: usize| row.try_get_unchecked::<Option<String>, _>(at).map(Option::unwrap_or_default);
    let met = if row.try_get_unchecked(4)? {
        Met::Own
    } else {
        Met::Other(format!("{:?} of tenant {:?} and consumer {:?}", text(1)?, text(3)?, text(2)?))
    };
    Ok((row.try_get(0)?, met))
}
