//! Receipts: written first, all of a batch together.
//!
//! The keys travel as one blob of sixteen bytes each and the names as one JSON array, so that a batch of any size is one
//! statement with three parameters. Measured with batches of 500: a `VALUES` list with its 1,500 parameters takes three
//! times as long, and `RETURNING` costs more than the insert itself, because each row travels between two threads.

use std::collections::HashSet;

use oncebox_core::error::BoxError;
use oncebox_core::inbox::Fingerprint;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Claim, ErrorClass, StoreError, StoreResult};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use crate::classify::{Context, is_plain_error};
use crate::store::Query;
use crate::time::now;
use crate::txn::SqliteTxn;

const DOING: &str = "claiming receipts";

macro_rules! insert {
    () => {
        insert!("", "")
    };
    ($column:literal, $value:literal) => {
        concat!(
            // SQLite has no clock but that of this process, so the later of the database's and the process's is the same.
            "INSERT INTO oncebox_inbox (key, consumer, tenant, message_id, processed_at",
            $column,
            ")
             SELECT substr(?1, c.key * 16 + 1, 16), ?3, c.value->>0, c.value->>1, ",
            now!(),
            $value,
            " FROM json_each(?2) c WHERE true ON CONFLICT (key)"
        )
    };
}

const INSERT: &str = concat!(insert!(), " DO NOTHING");
const INSERT_WITH_FINGERPRINT: &str =
    concat!(insert!(", fingerprint", ", substr(?4, c.key * 16 + 1, 16)"), " DO NOTHING");

/// What a claim found.
#[derive(Default)]
pub(crate) struct Found {
    /// Which receipts were not there before.
    pub(crate) fresh: Vec<bool>,
    /// Which have the key of another message's receipt.
    pub(crate) collisions: Vec<usize>,
    /// The fingerprints of those that were there, if copies are compared.
    pub(crate) fingerprints: Vec<(usize, Fingerprint)>,
}

/// Writes the receipts. The transaction holds the write lock, so nobody can come in between the look and the insert.
pub(crate) async fn claim(
    txn: &mut SqliteConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Found> {
    if claims.is_empty() {
        return Ok(Found::default());
    }
    let packed = Packed::new(consumer, claims)?;
    let fingerprints: Option<Vec<Fingerprint>> = claims.iter().map(|claim| claim.fingerprint).collect();
    let Known { there, collisions, fingerprints: known } = match &fingerprints {
        None => packed.known(txn).await?,
        Some(_) => packed.known_with_fingerprints(txn).await?,
    };
    let mut fresh = vec![true; claims.len()];
    for at in &there {
        fresh[*at] = false;
    }
    let expected = claims.len() - there.len();
    if expected > 0 {
        let insert = match fingerprints {
            None => packed.query(INSERT),
            Some(own) => {
                let own: Vec<u8> = own.iter().flat_map(|one| *one.as_bytes()).collect();
                packed.query(INSERT_WITH_FINGERPRINT).bind(own)
            }
        };
        let written = insert.execute(&mut *txn).await.context(DOING)?.rows_affected();
        if written != expected as u64 {
            return Err(impossible(format!("{written} receipts were written instead of {expected}")));
        }
    }
    Ok(Found { fresh, collisions, fingerprints: known })
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
        && let Some(at) = packed.known(conn).await?.collisions.first()
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

macro_rules! known {
    ($further:literal) => {
        concat!(
            "SELECT json_group_array(c.key), json_group_array(c.key) FILTER (
                 WHERE (i.consumer, i.tenant, i.message_id) IS NOT (?3, c.value->>0, c.value->>1))",
            $further,
            " FROM json_each(?2) c CROSS JOIN oncebox_inbox i ON i.key = substr(?1, c.key * 16 + 1, 16)"
        )
    };
}

const KNOWN: &str = known!("");
const KNOWN_WITH_FINGERPRINTS: &str = known!(
    ", json_group_array(json_array(c.key, hex(i.fingerprint))) FILTER (
         WHERE length(i.fingerprint) = 16 AND (i.consumer, i.tenant, i.message_id) IS (?3, c.value->>0, c.value->>1))"
);

/// Which claims have a receipt.
struct Known {
    there: Vec<usize>,
    /// Those of them whose receipt belongs to another message.
    collisions: Vec<usize>,
    fingerprints: Vec<(usize, Fingerprint)>,
}

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

    async fn known(&self, conn: &mut SqliteConnection) -> StoreResult<Known> {
        let row = self.query(KNOWN).fetch_one(conn).await.context(DOING)?;
        Ok(Known { there: indexes(&row, 0)?, collisions: indexes(&row, 1)?, fingerprints: Vec::new() })
    }

    async fn known_with_fingerprints(&self, conn: &mut SqliteConnection) -> StoreResult<Known> {
        let row = self.query(KNOWN_WITH_FINGERPRINTS).fetch_one(conn).await.context(DOING)?;
        let fingerprint = |(at, digits): (usize, String)| {
            let bytes = u128::from_str_radix(&digits, 16).map_err(impossible)?.to_be_bytes();
            Ok((at, Fingerprint::from(bytes)))
        };
        let text: String = row.try_get(2).context(DOING)?;
        let listed: Vec<(usize, String)> = serde_json::from_str(&text).map_err(impossible)?;
        Ok(Known {
            there: indexes(&row, 0)?,
            collisions: indexes(&row, 1)?,
            fingerprints: listed.into_iter().map(fingerprint).collect::<StoreResult<_>>()?,
        })
    }
}

fn indexes(row: &SqliteRow, column: usize) -> StoreResult<Vec<usize>> {
    let text: String = row.try_get(column).context(DOING)?;
    let mut indexes: Vec<usize> = serde_json::from_str(&text).map_err(impossible)?;
    indexes.sort_unstable();
    Ok(indexes)
}

/// The same key twice in one claim, or a bug.
fn impossible(error: impl Into<BoxError>) -> StoreError {
    StoreError::new(ErrorClass::Failed, DOING, error)
}
