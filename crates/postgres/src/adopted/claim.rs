//! Receipts in an adopted table: written first, all of a batch together.

use std::collections::{HashMap, HashSet};

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    AdoptedBatch, AdoptedRow, Claim, ErrorClass, FoundReceipt, IdKind, Met, Refused, StoreError, StoreResult,
    StoredId,
};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use uuid::Uuid;

use super::{Adopted, Table};
use crate::classify::Context;
use crate::store::{PgStore, Query};
use crate::time::now_ms;
use crate::txn::PgTxn;

const DOING: &str = "claiming receipts";

/// Writes the receipts: which of them were not there before, and which the table cannot hold or takes for others.
pub(crate) async fn claim(
    store: &PgStore,
    adopted: &Adopted,
    conn: &mut PgConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<(Vec<bool>, Vec<Refused>)> {
    if claims.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    adopted.ensure_holds(&table, consumer)?;
    match claim_in(store, &table, conn, consumer, claims).await {
        Err(error) => Err(adopted.look_again_after(store, error).await),
        claimed => claimed,
    }
}

/// [`claim`] in a transaction of somebody else.
pub(crate) async fn claim_within(
    store: &PgStore,
    adopted: &Adopted,
    conn: &mut PgConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    let refused = |why: String| StoreError::new(ErrorClass::Failed, DOING, why);
    if !conn.is_in_transaction() {
        return Err(refused("the connection is not in a transaction: call `begin` on it first".to_owned()));
    }
    let (fresh, not_taken) = claim(store, adopted, conn, consumer, claims).await?;
    match not_taken.first() {
        Some(Refused { at, why }) => Err(refused(format!("message {:?}: {why}", claims[*at].message_id))),
        None => Ok(fresh),
    }
}

async fn claim_in(
    store: &PgStore,
    table: &Table,
    conn: &mut PgConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<(Vec<bool>, Vec<Refused>)> {
    let batch = AdoptedBatch::new(&table.adopt, table.id, &table.required, claims);
    let rows: Vec<&AdoptedRow<'_>> = batch.rows.iter().collect();
    let mut written = HashSet::with_capacity(rows.len());
    if !rows.is_empty() {
        // The values of a message may be what the table does not take, or a trigger of the application.
        let insert = bound(store, table, &table.statements.insert, consumer, &rows);
        for row in insert.fetch_all(&mut *conn).await.context_of_user(DOING)? {
            written.insert(taken(table.id, &row).context(DOING)?);
        }
    }
    let mut met_by = HashMap::new();
    let known = batch.known(&written);
    if !known.is_empty() {
        let sent: Vec<_> = known.iter().map(|place| &batch.rows[*place]).collect();
        let query = keyed(store, table, &table.statements.met, &sent).bind(consumer.as_str());
        for row in query.fetch_all(conn).await.context_of_user("comparing receipts")? {
            let (ord, met) = met(&row).context("comparing receipts")?;
            if let Some(place) = usize::try_from(ord - 1).ok().and_then(|nth| known.get(nth)) {
                met_by.insert(*place, met);
            }
        }
    }
    let changed = |why| StoreError::new(ErrorClass::Environment, DOING, why);
    batch.answer(&table.adopt, &written, &met_by).map_err(changed)
}

/// The receipt of a message, if the table has it.
pub(crate) async fn find_receipt(
    store: &PgStore,
    adopted: &Adopted,
    conn: &mut PgConnection,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<Option<FoundReceipt>> {
    let doing = "looking for a receipt";
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    let claims = [claim];
    let batch = AdoptedBatch::new(&table.adopt, table.id, &[], &claims);
    let rows: Vec<&AdoptedRow<'_>> = batch.rows.iter().collect();
    // What the table cannot hold it does not have.
    if rows.is_empty() {
        return Ok(None);
    }
    let look = keyed(store, &table, &table.statements.met, &rows).bind(consumer.as_str());
    for row in look.fetch_all(conn).await.context_of_user(doing)? {
        if met(&row).context(doing)?.1 == Met::Own {
            return Ok(Some(FoundReceipt { processed_at_ms: row.try_get(5).context(doing)? }));
        }
    }
    Ok(None)
}

/// Writes a receipt, or makes the one that exists as young as a new one.
pub(crate) async fn renew(
    store: &PgStore,
    adopted: &Adopted,
    txn: &mut PgTxn,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<()> {
    let doing = "renewing a receipt";
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    let claims = [claim];
    let batch = AdoptedBatch::new(&table.adopt, table.id, &[], &claims);
    let rows: Vec<&AdoptedRow<'_>> = batch.rows.iter().collect();
    if rows.is_empty() {
        let why =
            format!("the table {} cannot hold the receipt of message {:?}", table.adopt, claim.message_id);
        return Err(StoreError::new(ErrorClass::Failed, doing, why));
    }
    let renew = bound(store, &table, &table.statements.renew, consumer, &rows);
    match renew.execute(&mut **txn).await.context_of_user(doing) {
        Err(error) => Err(adopted.look_again_after(store, error).await),
        Ok(_) => Ok(()),
    }
}

/// All parameters of a statement that writes.
fn bound<'q>(
    store: &PgStore,
    table: &Table,
    sql: &str,
    consumer: &'q ConsumerName,
    rows: &[&AdoptedRow<'q>],
) -> Query<'q> {
    let mut query = keyed(store, table, sql, rows).bind(consumer.as_str()).bind(now_ms());
    for nth in 0..table.adopt.set_columns().count() {
        let value = |row: &&AdoptedRow<'q>| row.claim.set.get(nth).cloned().flatten();
        query = query.bind(rows.iter().map(value).collect::<Vec<Option<String>>>());
    }
    query
}

/// A statement with ids and tenants as its first two parameters.
fn keyed<'q>(store: &PgStore, table: &Table, sql: &str, rows: &[&AdoptedRow<'q>]) -> Query<'q> {
    let query = store.query(AssertSqlSafe(sql.to_owned()));
    let query = match table.id {
        IdKind::Uuid => query.bind(rows.iter().map(|row| uuid(&row.id)).collect::<Vec<_>>()),
        IdKind::UuidBytes | IdKind::Bytes { .. } => {
            query.bind(rows.iter().map(|row| bytes(&row.id)).collect::<Vec<_>>())
        }
        IdKind::Text { .. } | IdKind::UuidHex => {
            query.bind(rows.iter().map(|row| text(&row.id)).collect::<Vec<_>>())
        }
    };
    query.bind(rows.iter().map(|row| row.claim.tenant).collect::<Vec<_>>())
}

fn uuid(id: &StoredId) -> Option<Uuid> {
    if let StoredId::Uuid(id) = id { Some(*id) } else { None }
}

fn bytes(id: &StoredId) -> Option<Vec<u8>> {
    if let StoredId::Bytes(bytes) = id { Some(bytes.clone()) } else { None }
}

fn text(id: &StoredId) -> Option<String> {
    if let StoredId::Text(text) = id { Some(text.clone()) } else { None }
}

/// What the table took: an id and its tenant.
fn taken(id: IdKind, row: &PgRow) -> sqlx::Result<(StoredId, String)> {
    Ok((stored_id(id, row)?, row.try_get(1)?))
}

/// The id in the first column.
pub(super) fn stored_id(id: IdKind, row: &PgRow) -> sqlx::Result<StoredId> {
    Ok(match id {
        IdKind::Uuid => StoredId::Uuid(row.try_get(0)?),
        IdKind::UuidBytes | IdKind::Bytes { .. } => StoredId::Bytes(row.try_get(0)?),
        IdKind::Text { .. } | IdKind::UuidHex => StoredId::Text(row.try_get(0)?),
    })
}

/// The place of a claim that the table did not take, and whose receipt is there.
fn met(row: &PgRow) -> sqlx::Result<(i64, Met)> {
    let text = |at: usize| row.try_get::<Option<String>, _>(at).map(Option::unwrap_or_default);
    let met = if row.try_get(4)? {
        Met::Own
    } else {
        Met::Other(format!("{:?} of tenant {:?} and consumer {:?}", text(1)?, text(3)?, text(2)?))
    };
    Ok((row.try_get(0)?, met))
}
