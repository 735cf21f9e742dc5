//! Receipts: written first, all of a batch together.

use std::collections::{HashMap, HashSet};

use oncebox_core::inbox::Fingerprint;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Claim, ErrorClass, StoreError, StoreResult};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::classify::Context;
use crate::store::{PgStore, Query};
use crate::time::now_ms;
use crate::txn::PgTxn;

const DOING: &str = "claiming receipts";
const COMPARING: &str = "comparing receipts";

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

/// Writes the receipts.
pub(crate) async fn claim(
    store: &PgStore,
    conn: &mut PgConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Found> {
    let fresh = insert(store, conn, consumer, claims).await?;
    let known: Vec<&Claim<'_>> =
        claims.iter().zip(&fresh).filter(|(_, fresh)| !**fresh).map(|(claim, _)| claim).collect();
    // A batch without duplicates pays nothing for it.
    if known.is_empty() {
        return Ok(Found { fresh, ..Found::default() });
    }
    if known.iter().any(|claim| claim.fingerprint.is_some()) {
        return compare(store, conn, consumer, claims, fresh, &known).await;
    }
    let collisions = collisions(store, conn, consumer, claims, &known).await?;
    Ok(Found { fresh, collisions, fingerprints: Vec::new() })
}

/// [`claim`] in a transaction of somebody else.
pub(crate) async fn claim_within(
    store: &PgStore,
    conn: &mut PgConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    let refused = |why: String| StoreError::new(ErrorClass::Failed, DOING, why);
    // Without one the receipts would be there before their effects, and a crash in between would lose the messages.
    if !conn.is_in_transaction() {
        return Err(refused("the connection is not in a transaction: call `begin` on it first".to_owned()));
    }
    let Found { fresh, collisions, .. } = claim(store, conn, consumer, claims).await?;
    if let Some(other) = collisions.first().and_then(|at| claims.get(*at)) {
        return Err(refused(format!(
            "message {:?} of consumer {consumer} was not applied, but its receipt belongs to another message. Ids \
             that collide are made on purpose: look at who sends them, and give the message another id",
            other.message_id
        )));
    }
    Ok(fresh)
}

/// The arrays come sorted by key: see [`insert`]. ON CONFLICT waits for a receipt that another open transaction holds, and
/// goes by how that one ends. The later of two clocks dates a receipt, so that one that was set back does not make it look
/// old.
const INSERT: &str = "INSERT INTO oncebox_inbox (key, processed_at, consumer, message_id, tenant) \
     SELECT k, (SELECT GREATEST(now(), timestamptz 'epoch' + $2::bigint * interval '1 millisecond')), $1, m, t \
     FROM unnest($3::uuid[], $4::text[], $5::text[]) AS c(k, m, t) ON CONFLICT (key) DO NOTHING RETURNING key";

/// The same for the many who have no tenants.
const INSERT_WITHOUT_TENANT: &str = "INSERT INTO oncebox_inbox (key, processed_at, consumer, message_id, tenant) \
     SELECT k, (SELECT GREATEST(now(), timestamptz 'epoch' + $2::bigint * interval '1 millisecond')), $1, m, '' \
     FROM unnest($3::uuid[], $4::text[]) AS c(k, m) ON CONFLICT (key) DO NOTHING RETURNING key";

/// The same with what the payload was.
const INSERT_WITH_FINGERPRINT: &str = "INSERT INTO oncebox_inbox (key, processed_at, consumer, message_id, tenant, fingerprint) \
     SELECT k, (SELECT GREATEST(now(), timestamptz 'epoch' + $2::bigint * interval '1 millisecond')), $1, m, t, f \
     FROM unnest($3::uuid[], $4::text[], $5::text[], $6::uuid[]) AS c(k, m, t, f) ON CONFLICT (key) DO NOTHING RETURNING key";

/// Writes the receipts and says which were not there before.
async fn insert(
    store: &PgStore,
    conn: &mut PgConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    // Rows are inserted in the order of the arrays. Sorted, two batches with the same messages in another order wait
    // for each other instead of deadlocking.
    let mut sorted: Vec<&Claim<'_>> = claims.iter().collect();
    sorted.sort_unstable_by_key(|claim| claim.key);
    let keys: Vec<Uuid> = sorted.iter().map(|claim| key(claim)).collect();
    let ids: Vec<&str> = sorted.iter().map(|claim| claim.message_id).collect();
    let some_fingerprint = claims.iter().any(|claim| claim.fingerprint.is_some());
    let some_tenant = some_fingerprint || claims.iter().any(|claim| !claim.tenant.is_empty());
    let sql = match (some_fingerprint, some_tenant) {
        (true, _) => INSERT_WITH_FINGERPRINT,
        (false, true) => INSERT,
        (false, false) => INSERT_WITHOUT_TENANT,
    };
    let mut insert = store.query(sql).bind(consumer.as_str()).bind(now_ms()).bind(keys).bind(ids);
    if some_tenant {
        insert = insert.bind(sorted.iter().map(|claim| claim.tenant).collect::<Vec<_>>());
    }
    if some_fingerprint {
        let own = sorted.iter().map(|claim| claim.fingerprint.map(|own| Uuid::from_bytes(*own.as_bytes())));
        insert = insert.bind(own.collect::<Vec<_>>());
    }
    let written = insert.fetch_all(conn).await.context(DOING)?;
    if written.len() == claims.len() {
        return Ok(vec![true; claims.len()]);
    }
    let written: HashSet<Uuid> =
        written.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().context(DOING)?;
    Ok(claims.iter().map(|claim| written.contains(&key(claim))).collect())
}

/// Receipts that belong to other messages than those that claim them.
const COLLISIONS: &str = "SELECT i.key FROM unnest($2::uuid[], $3::text[], $4::text[]) AS c(k, m, t) \
     JOIN oncebox_inbox i ON i.key = c.k WHERE (i.message_id, i.tenant, i.consumer) IS DISTINCT FROM (c.m, c.t, $1)";

/// The claims that found the receipt of another message.
async fn collisions(
    store: &PgStore,
    conn: &mut PgConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
    known: &[&Claim<'_>],
) -> StoreResult<Vec<usize>> {
    let others = look(store, COLLISIONS, consumer, known).fetch_all(conn).await.context(COMPARING)?;
    if others.is_empty() {
        return Ok(Vec::new());
    }
    let others: HashSet<Uuid> =
        others.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().context(COMPARING)?;
    Ok((0..claims.len()).filter(|at| others.contains(&key(&claims[*at]))).collect())
}

/// Of each receipt, whether it belongs to another message than the one that claims it, and what the payload was.
const COMPARE: &str = "SELECT i.key, (i.message_id, i.tenant, i.consumer) IS DISTINCT FROM (c.m, c.t, $1), i.fingerprint \
     FROM unnest($2::uuid[], $3::text[], $4::text[]) AS c(k, m, t) JOIN oncebox_inbox i ON i.key = c.k";

/// [`collisions`], and the fingerprints of the others.
async fn compare(
    store: &PgStore,
    conn: &mut PgConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
    fresh: Vec<bool>,
    known: &[&Claim<'_>],
) -> StoreResult<Found> {
    let rows = look(store, COMPARE, consumer, known).fetch_all(conn).await.context(COMPARING)?;
    let receipt = |row: &PgRow| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?)));
    let receipts: HashMap<Uuid, (bool, Option<Uuid>)> =
        rows.iter().map(receipt).collect::<sqlx::Result<_>>().context(COMPARING)?;
    let mut found = Found { fresh, ..Found::default() };
    for (at, claim) in claims.iter().enumerate() {
        match receipts.get(&key(claim)) {
            Some((true, _)) => found.collisions.push(at),
            Some((false, Some(first))) => found.fingerprints.push((at, (*first.as_bytes()).into())),
            Some((false, None)) | None => {}
        }
    }
    Ok(found)
}

/// Asks about the receipts that these claims found.
fn look(store: &PgStore, sql: &'static str, consumer: &ConsumerName, known: &[&Claim<'_>]) -> Query<'static> {
    store
        .query(sql)
        .bind(consumer.as_str())
        .bind(known.iter().map(|claim| key(claim)).collect::<Vec<_>>())
        .bind(known.iter().map(|claim| claim.message_id).collect::<Vec<_>>())
        .bind(known.iter().map(|claim| claim.tenant).collect::<Vec<_>>())
}

/// Not the row of another message: its receipt is of the same key, and not ours to touch.
const RENEW: &str = "INSERT INTO oncebox_inbox AS i (key, processed_at, consumer, tenant, message_id) \
     VALUES ($1, GREATEST(now(), timestamptz 'epoch' + $2::bigint * interval '1 millisecond'), $3, $4, $5) \
     ON CONFLICT (key) DO UPDATE SET processed_at = GREATEST(i.processed_at, EXCLUDED.processed_at) \
         WHERE (i.consumer, i.tenant, i.message_id) = (EXCLUDED.consumer, EXCLUDED.tenant, EXCLUDED.message_id)";

/// Writes a receipt, or makes the one that exists as young as a new one.
pub(crate) async fn renew(
    store: &PgStore,
    txn: &mut PgTxn,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<()> {
    store
        .query(RENEW)
        .bind(key(&claim))
        .bind(now_ms())
        .bind(consumer.as_str())
        .bind(claim.tenant)
        .bind(claim.message_id)
        .execute(&mut **txn)
        .await
        .context("renewing a receipt")?;
    Ok(())
}

fn key(claim: &Claim<'_>) -> Uuid {
    Uuid::from_bytes(*claim.key.as_bytes())
}
