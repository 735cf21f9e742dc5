//! Receipts: written first, all of a batch together.
//!
//! The keys travel as one blob of sixteen bytes each and the names as one JSON array, so that a batch of any size is one
//! statement with three parameters. Measured with batches of 500: a `VALUES` list with its 1,500 parameters takes three
//! times as long, and `RETURNING` costs more than the insert itself, because each row travels between two threads.

use std::collections::HashSet;

use oncebox_core::{BoxError, Claim, ConsumerName, ErrorClass, StoreError, StoreResult};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Row, Sqlite, SqliteConnection};

use crate::classify::Context;
use crate::time::now;
use crate::txn::SqliteTxn;

const DOING: &str = "writing receipts";

const KNOWN: &str = "SELECT json_group_array(c.key)
     FROM json_each(?2) c CROSS JOIN oncebox_inbox i ON i.key = substr(?1, c.key * 16 + 1, 16)";

macro_rules! insert {
    () => {
        concat!(
            "INSERT INTO oncebox_inbox (key, consumer, tenant, message_id, processed_at)
             SELECT substr(?1, c.key * 16 + 1, 16), ?3, c.value->>0, c.value->>1, ",
            now!(),
            " FROM json_each(?2) c WHERE true ON CONFLICT (key) DO NOTHING"
        )
    };
}

const INSERT: &str = insert!();
const INSERT_AND_TELL: &str = concat!(insert!(), " RETURNING key");

/// Writes the receipts and says which were not there before. The transaction holds the write lock, so nobody can come in
/// between the look and the insert.
pub(crate) async fn claim(
    txn: &mut SqliteTxn,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    let mut fresh = vec![true; claims.len()];
    if claims.is_empty() {
        return Ok(fresh);
    }
    let packed = Packed::new(claims)?;
    let row = packed.query(KNOWN).fetch_one(&mut **txn).await.context(DOING)?;
    let known: String = row.try_get(0).context(DOING)?;
    let known: Vec<usize> = serde_json::from_str(&known).map_err(impossible)?;
    for at in &known {
        fresh[*at] = false;
    }
    let expected = claims.len() - known.len();
    if expected > 0 {
        let insert = packed.query(INSERT).bind(consumer.as_str());
        let written = insert.execute(&mut **txn).await.context(DOING)?.rows_affected();
        if written != expected as u64 {
            return Err(impossible(format!("{written} receipts were written instead of {expected}")));
        }
    }
    Ok(fresh)
}

/// [`claim`] in a transaction of somebody else, which may not hold the write lock yet: in one statement.
pub(crate) async fn claim_within(
    conn: &mut SqliteConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    let insert = Packed::new(claims)?.query(INSERT_AND_TELL).bind(consumer.as_str());
    let rows = insert.fetch_all(conn).await.context(DOING)?;
    let fresh: HashSet<&[u8]> =
        rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().context(DOING)?;
    Ok(claims.iter().map(|claim| fresh.contains(claim.key.as_bytes().as_slice())).collect())
}

/// The claims as parameters 1 and 2.
struct Packed {
    keys: Vec<u8>,
    names: String,
}

impl Packed {
    fn new(claims: &[Claim<'_>]) -> StoreResult<Self> {
        let keys = claims.iter().flat_map(|claim| *claim.key.as_bytes()).collect();
        let names: Vec<_> = claims.iter().map(|claim| (claim.tenant, claim.message_id)).collect();
        Ok(Self { keys, names: serde_json::to_string(&names).map_err(impossible)? })
    }

    fn query(&self, sql: &'static str) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
        sqlx::query(sql).bind(self.keys.as_slice()).bind(self.names.as_str())
    }
}

/// The same key twice in one claim, or a bug.
fn impossible(error: impl Into<BoxError>) -> StoreError {
    StoreError::new(ErrorClass::Failed, DOING, error)
}
