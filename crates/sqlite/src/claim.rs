//! Receipts: written first, all of a batch together.
//!
//! The keys travel as one blob of sixteen bytes each and the names as one JSON array, so that a batch of any size is one
//! statement with three parameters. Measured with batches of 500: a `VALUES` list with its 1,500 parameters takes three
//! times as long, and `RETURNING` costs more than the insert itself, because each row travels between two threads.

use std::collections::HashSet;

use oncebox_core::error::BoxError;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Claim, ErrorClass, StoreError, StoreResult};
use sqlx::{Row, SqliteConnection};

use crate::classify::{Context, is_plain_error};
use crate::store::Query;
use crate::time::now;
use crate::txn::SqliteTxn;

const DOING: &str = "claiming receipts";

macro_rules! insert {
    () => {
        concat!(
            // SQLite has no clock but that of this process, so the later of the database's and the process's is the same.
            "INSERT INTO oncebox_inbox (key, consumer, tenant, message_id, processed_at)
             SELECT substr(?1, c.key * 16 + 1, 16), ?3, c.value->>0, c.value->>1, ",
            now!(),
            " FROM json_each(?2) c WHERE true ON CONFLICT (key)"
        )
    };
}

const INSERT: &str = concat!(insert!(), " DO NOTHING");

/// Writes the receipts: which of them were not there before, and which have the key of another message's receipt. The
/// transaction holds the write lock, so nobody can come in between the look and the insert.
pub(crate) async fn claim(
    txn: &mut SqliteConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<(Vec<bool>, Vec<usize>)> {
    let mut fresh = vec![true; claims.len()];
    if claims.is_empty() {
        return Ok((fresh, Vec::new()));
    }
    let packed = Packed::new(consumer, claims)?;
    let (known, collisions) = packed.known(txn).await?;
    for at in &known {
        fresh[*at] = false;
    }
    let expected = claims.len() - known.len();
    if expected > 0 {
        let written = packed.query(INSERT).execute(&mut *txn).await.context(DOING)?.rows_affected();
        if written != expected as u64 {
            return Err(impossible(format!("{written} receipts were written instead of {expected}")));
        }
    }
    Ok((fresh, collisions))
}

const INSERT_AND_TELL: &str = concat!(insert!(), " DO NOTHING RETURNING key");

/// [`claim`] in a transaction of somebody else, which may not hold the write lock yet: in one statement.
pub(crate) async fn claim_within(
    conn: &mut SqliteConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    ensure_transaction(conn).await?;
    let packed = Packed::new(consumer, claims)?;
    let rows = packed.query(INSERT_AND_TELL).fetch_all(&mut *conn).await.context(DOING)?;
    let fresh: HashSet<&[u8]> =
        rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().context(DOING)?;
    if fresh.len() < claims.len()
        && let Some(at) = packed.known(conn).await?.1.first()
    {
        let Claim { tenant, message_id, .. } = claims[*at];
        return Err(impossible(format!(
            "the receipt of message {message_id:?} of tenant {tenant:?} would have the key of another message's \
             receipt; it was not applied, give it another id"
        )));
    }
    Ok(claims.iter().map(|claim| fresh.contains(claim.key.as_bytes().as_slice())).collect())
}

const RENEW: &str = concat!(insert!(), " DO UPDATE SET processed_at = excluded.processed_at");

/// Writes a receipt, or makes the one that exists as young as a new one.
pub(crate) async fn renew(txn: &mut SqliteTxn, consumer: &ConsumerName, claim: Claim<'_>) -> StoreResult<()> {
    Packed::new(consumer, &[claim])?.query(RENEW).execute(&mut **txn).await.context(DOING)?;
    Ok(())
}

/// Outside of a transaction the receipts would be there before their effects, and a crash in between would lose the
/// messages. SQLite itself is asked, because a transaction may have been begun or ended behind the driver's back: it
/// refuses to begin one inside of another.
pub(crate) async fn ensure_transaction(conn: &mut SqliteConnection) -> StoreResult<()> {
    match sqlx::raw_sql("BEGIN; ROLLBACK").execute(conn).await {
        Err(error) if is_plain_error(&error) => Ok(()),
        Err(error) => Err(error).context(DOING),
        Ok(_) => {
            let why = "the connection is not in a transaction: call `begin` on it first";
            Err(StoreError::new(ErrorClass::Failed, DOING, why))
        }
    }
}

/// Which claims have a receipt, and of which of them it belongs to another message.
const KNOWN: &str = "SELECT json_group_array(c.key), json_group_array(c.key) FILTER (
        WHERE (i.consumer, i.tenant, i.message_id) IS NOT (?3, c.value->>0, c.value->>1))
     FROM json_each(?2) c CROSS JOIN oncebox_inbox i ON i.key = substr(?1, c.key * 16 + 1, 16)";

/// The claims as parameters 1 and 2, and their consumer as the third.
struct Packed<'c> {
    keys: Vec<u8>,
    names: String,
    consumer: &'c ConsumerName,
}

impl<'c> Packed<'c> {
    fn new(consumer: &'c ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Self> {
        let keys = claims.iter().flat_map(|claim| *claim.key.as_bytes()).collect();
        let names: Vec<_> = claims.iter().map(|claim| (claim.tenant, claim.message_id)).collect();
        Ok(Self { keys, names: serde_json::to_string(&names).map_err(impossible)?, consumer })
    }

    fn query(&self, sql: &'static str) -> Query {
        sqlx::query(sql).bind(self.keys.as_slice()).bind(self.names.as_str()).bind(self.consumer.as_str())
    }

    /// Which claims have a receipt, and which of these belong to another message.
    async fn known(&self, conn: &mut SqliteConnection) -> StoreResult<(Vec<usize>, Vec<usize>)> {
        let row = self.query(KNOWN).fetch_one(conn).await.context(DOING)?;
        let indexes = |column: usize| {
            let text: String = row.try_get(column).context(DOING)?;
            let mut indexes: Vec<usize> = serde_json::from_str(&text).map_err(impossible)?;
            indexes.sort_unstable();
            Ok(indexes)
        };
        Ok((indexes(0)?, indexes(1)?))
    }
}

/// The same key twice in one claim, or a bug.
fn impossible(error: impl Into<BoxError>) -> StoreError {
    StoreError::new(ErrorClass::Failed, DOING, error)
}
