//! Receipts in an adopted table: written first, all of a batch together.
//!
//! The table has no column that could tell a receipt that was there from one that was written just now, and `INSERT IGNORE` would
//! hide other errors. So the receipts that are there are read first, and the others are inserted. Somebody may come in between:
//! the insert waits for that one, and says 1062 if it commits. Then both are done again, and the reading finds it. Each
//! round finds at least one more, or the row is one that the table only takes for ours.

use std::collections::{HashMap, HashSet};

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    AdoptedBatch, AdoptedRow, Claim, ErrorClass, FoundReceipt, Met, Refused, StoreError, StoreResult,
    StoredId,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};

use super::statements::stored_bytes;
use super::{Adopted, Table};
use crate::claim::MAX_MESSAGE_BYTES;
use crate::classify::{Context, number_of};
use crate::store::MysqlStore;
use crate::txn::MysqlTxn;

const DOING: &str = "claiming receipts";
/// A unique key has this value already.
const DUPLICATE: u16 = 1062;
/// Rounds without any progress: somebody may write and remove a receipt in between, but not time and again.
const MAX_IDLE_ROUNDS: u32 = 3;

/// How the receipts that are there are read.
#[derive(Clone, Copy)]
enum Reading {
    /// Waits for nobody. In READ COMMITTED every statement sees what is committed.
    Plain,
    /// Sees what an insert sees, also in a transaction of somebody else, which may have an older snapshot.
    Locking,
}

impl Reading {
    fn clause(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Locking => " LOCK IN SHARE MODE",
        }
    }
}

/// Writes the receipts: which of them were not there before, and which the table cannot hold or takes for others.
pub(crate) async fn claim(
    store: &MysqlStore,
    adopted: &Adopted,
    txn: &mut MysqlTxn,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<(Vec<bool>, Vec<Refused>)> {
    if claims.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let found = claim_by(store, adopted, txn, consumer, claims, Reading::Plain).await?;
    Ok((found.fresh, found.refused))
}

/// [`claim`] in a transaction of somebody else.
pub(crate) async fn claim_within(
    store: &MysqlStore,
    adopted: &Adopted,
    conn: &mut MySqlConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    let refused = |why: String| StoreError::new(ErrorClass::Failed, DOING, why);
    if !conn.is_in_transaction() {
        return Err(refused("the connection is not in a transaction: call `begin` on it first".to_owned()));
    }
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let found = claim_by(store, adopted, conn, consumer, claims, Reading::Locking).await?;
    match found.refused.first() {
        Some(Refused { at, why }) => Err(refused(format!("message {:?}: {why}", claims[*at].message_id))),
        None => Ok(found.fresh),
    }
}

/// What a claim found.
struct Found {
    fresh: Vec<bool>,
    refused: Vec<Refused>,
}

async fn claim_by(
    store: &MysqlStore,
    adopted: &Adopted,
    conn: &mut MySqlConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
    reading: Reading,
) -> StoreResult<Found> {
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    adopted.ensure_holds(&table, consumer)?;
    match claim_in(&table, conn, consumer, claims, reading).await {
        Err(error) => Err(adopted.look_again_after(store, error).await),
        Ok(found) => Ok(found),
    }
}

async fn claim_in(
    table: &Table,
    conn: &mut MySqlConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
    reading: Reading,
) -> StoreResult<Found> {
    let batch = AdoptedBatch::new(&table.adopt, table.id, &table.required, claims);
    let (mut written, mut met) = (HashSet::with_capacity(batch.rows.len()), HashMap::new());
    for part in parts(&batch.rows) {
        let mut open: Vec<usize> = part.collect();
        let (mut idle_rounds, mut reading) = (0, reading);
        // Every round makes `open` smaller, or is one of a few that do not.
        while !open.is_empty() {
            let before = open.len();
            remove_known(table, conn, consumer, &batch.rows, &mut open, &mut met, reading).await?;
            if open.is_empty() {
                break;
            }
            let rows: Vec<_> = open.iter().map(|place| &batch.rows[*place]).collect();
            let insert = table.statements.insert(consumer, &rows);
            // The values of a message may be what the table does not take, or a trigger of the application.
            match sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut *conn).await {
                Ok(_) => {
                    let new = rows.iter().map(|row| (row.id.clone(), row.claim.tenant.to_owned()));
                    written.extend(new);
                    break;
                }
                Err(error) if number_of(&error) == Some(DUPLICATE) => {
                    // MySQL says so a moment before a plain reading sees it.
                    reading = Reading::Locking;
                    if open.len() == before {
                        remove_others(table, conn, consumer, &batch.rows, &mut open, &mut met, reading)
                            .await?;
                    }
                    if open.len() == before {
                        idle_rounds += 1;
                        if idle_rounds == MAX_IDLE_ROUNDS {
                            return Err(error).context_of_values(DOING);
                        }
                    }
                }
                Err(error) => return Err(error).context_of_values(DOING),
            }
        }
    }
    let changed = |why| StoreError::new(ErrorClass::Environment, DOING, why);
    let (fresh, refused) = batch.answer(&table.adopt, &written, &met).map_err(changed)?;
    Ok(Found { fresh, refused })
}

/// Places of rows that fit into one message.
fn parts(rows: &[AdoptedRow<'_>]) -> Vec<std::ops::Range<usize>> {
    let bytes = |row: &AdoptedRow<'_>| {
        let set: usize = row.claim.set.iter().flatten().map(String::len).sum();
        2 * (row.claim.message_id.len() + row.claim.tenant.len() + set) + 700
    };
    let (mut parts, mut from, mut size) = (Vec::new(), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        size += bytes(row);
        if size > MAX_MESSAGE_BYTES && at > from {
            parts.push(from..at);
            (from, size) = (at, bytes(row));
        }
    }
    parts.push(from..rows.len());
    parts
}

/// A receipt as it is in the table: id, consumer, tenant.
type Receipt = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

fn receipt(row: &MySqlRow) -> sqlx::Result<Receipt> {
    Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?, row.try_get_unchecked(2)?))
}

/// Whether the receipt is exactly the one of this message. Compared here and not by the server, whose collations know equal
/// texts that are not the same.
fn is_of(receipt: &Receipt, consumer: &ConsumerName, id: &StoredId, tenant: &str) -> bool {
    // NULL is no tenant, and whose receipt it is that names no consumer the key has decided.
    receipt.0 == stored_bytes(id)
        && receipt.1.as_deref().is_none_or(|name| name == consumer.as_str().as_bytes())
        && receipt.2.as_deref().unwrap_or_default() == tenant.as_bytes()
}

/// Receipts by their ids.
fn by_id(found: &[MySqlRow]) -> sqlx::Result<HashMap<Vec<u8>, Vec<Receipt>>> {
    let mut receipts = HashMap::with_capacity(found.len());
    for row in found {
        let receipt = receipt(row)?;
        receipts.entry(receipt.0.clone()).or_insert_with(Vec::new).push(receipt);
    }
    Ok(receipts)
}

/// Leaves those that have no receipt.
async fn remove_known(
    table: &Table,
    conn: &mut MySqlConnection,
    consumer: &ConsumerName,
    rows: &[AdoptedRow<'_>],
    open: &mut Vec<usize>,
    met: &mut HashMap<usize, Met>,
    reading: Reading,
) -> StoreResult<()> {
    let sent: Vec<_> = open.iter().map(|place| (&rows[*place].id, rows[*place].claim.tenant)).collect();
    let select = table.statements.known(consumer, &sent, reading.clause());
    let found = sqlx::raw_sql(AssertSqlSafe(select)).fetch_all(conn).await.context_of_values(DOING)?;
    let found = by_id(&found).context(DOING)?;
    open.retain(|place| {
        let row = &rows[*place];
        let receipts = found.get(&stored_bytes(&row.id)).map_or(&[][..], Vec::as_slice);
        let known = receipts.iter().any(|receipt| is_of(receipt, consumer, &row.id, row.claim.tenant));
        if known {
            met.insert(*place, Met::Own);
        }
        !known
    });
    Ok(())
}

/// Takes out those whose place another message's receipt has, and those whose own receipt is there by now.
async fn remove_others(
    table: &Table,
    conn: &mut MySqlConnection,
    consumer: &ConsumerName,
    rows: &[AdoptedRow<'_>],
    open: &mut Vec<usize>,
    met: &mut HashMap<usize, Met>,
    reading: Reading,
) -> StoreResult<()> {
    let doing = "comparing receipts";
    for place in std::mem::take(open) {
        let select = table.statements.taken_for(consumer, &rows[place], reading.clause());
        let found =
            sqlx::raw_sql(AssertSqlSafe(select)).fetch_optional(&mut *conn).await.context_of_values(doing)?;
        match found.as_ref().map(receipt).transpose().context(doing)? {
            // It was committed a moment ago.
            Some(receipt) if is_of(&receipt, consumer, &rows[place].id, rows[place].claim.tenant) => {
                met.insert(place, Met::Own);
            }
            Some((id, consumer, tenant)) => {
                let text =
                    |bytes: Option<Vec<u8>>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
                let (id, consumer, tenant) = (text(Some(id)), text(consumer), text(tenant));
                let other = format!("{id:?} of tenant {tenant:?} and consumer {consumer:?}");
                met.insert(place, Met::Other(other));
            }
            None => open.push(place),
        }
    }
    Ok(())
}

/// The receipt of a message, if the table has it.
pub(crate) async fn find_receipt(
    store: &MysqlStore,
    adopted: &Adopted,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<Option<FoundReceipt>> {
    let doing = "looking for a receipt";
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    let claims = [claim];
    let batch = AdoptedBatch::new(&table.adopt, table.id, &[], &claims);
    // What the table cannot hold it does not have.
    let Some(row) = batch.rows.first() else { return Ok(None) };
    let mut txn = store.begin_in_utc().await?;
    let look = table.statements.dated(consumer, row);
    let found = sqlx::raw_sql(AssertSqlSafe(look)).fetch_all(&mut *txn).await.context_of_values(doing)?;
    txn.rollback().await;
    for one in &found {
        let is_own = is_of(&receipt(one).context(doing)?, consumer, &row.id, row.claim.tenant);
        if is_own {
            return Ok(Some(FoundReceipt { processed_at_ms: one.try_get(3).context(doing)? }));
        }
    }
    Ok(None)
}

/// Writes a receipt, or makes the one that exists as young as a new one.
pub(crate) async fn renew(
    store: &MysqlStore,
    adopted: &Adopted,
    txn: &mut MysqlTxn,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<()> {
    let doing = "renewing a receipt";
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    let claims = [claim];
    let batch = AdoptedBatch::new(&table.adopt, table.id, &[], &claims);
    let Some(row) = batch.rows.first() else {
        let why =
            format!("the table {} cannot hold the receipt of message {:?}", table.adopt, claim.message_id);
        return Err(StoreError::new(ErrorClass::Failed, doing, why));
    };
    let renewed = async {
        if let Some(renew) = table.statements.renew(consumer, row) {
            let done =
                sqlx::raw_sql(AssertSqlSafe(renew)).execute(&mut **txn).await.context_of_values(doing)?;
            // The driver asks for the rows that were found, not only those that were changed.
            if done.rows_affected() > 0 {
                return Ok(());
            }
        }
        // The receipt of another message stays as it is, as in a claim that meets it.
        claim_in(&table, txn, consumer, &claims, Reading::Plain).await.map(|_| ())
    };
    match renewed.await {
        Err(error) => Err(adopted.look_again_after(store, error).await),
        Ok(()) => Ok(()),
    }
}
