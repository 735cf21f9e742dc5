//! Opening a transaction with its receipts, and committing it with its position.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Advance, Claim, Claimed, ErrorClass, StoreError, StoreResult};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::classify::{after_handler, own};
use crate::position::advance_call;
use crate::quote::literal;
use crate::store::PgStore;
use crate::txn::{AFTER_HANDLER, PgTxn, STILL_OPEN};

/// The arrays come sorted by key: see [`PgStore::write_receipts`]. ON CONFLICT waits for a receipt that another open
/// transaction holds, and goes by how that one ends. The later of two clocks dates a receipt, so that one that was set
/// back does not make it look old.
const CLAIM: &str = "INSERT INTO oncebox_inbox (key, processed_at, consumer, message_id, tenant) \
     SELECT k, (SELECT GREATEST(now(), timestamptz 'epoch' + $2::bigint * interval '1 millisecond')), $1, m, t \
     FROM unnest($3::uuid[], $4::text[], $5::text[]) AS c(k, m, t) ON CONFLICT (key) DO NOTHING RETURNING key";

/// The same for the many who have no tenants.
const CLAIM_WITHOUT_TENANT: &str = "INSERT INTO oncebox_inbox (key, processed_at, consumer, message_id, tenant) \
     SELECT k, (SELECT GREATEST(now(), timestamptz 'epoch' + $2::bigint * interval '1 millisecond')), $1, m, '' \
     FROM unnest($3::uuid[], $4::text[]) AS c(k, m) ON CONFLICT (key) DO NOTHING RETURNING key";

/// Receipts that belong to other messages than those that claim them.
const COLLISIONS: &str = "SELECT i.key FROM unnest($2::uuid[], $3::text[], $4::text[]) AS c(k, m, t) \
     JOIN oncebox_inbox i ON i.key = c.k WHERE (i.message_id, i.tenant, i.consumer) IS DISTINCT FROM (c.m, c.t, $1)";

impl PgStore {
    pub(crate) async fn claim_receipts(
        &self,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Claimed<PgTxn>> {
        let mut txn = self.begin().await?;
        let fresh = self.write_receipts(&mut txn, consumer, claims).await?;
        let collisions = self.collisions(&mut txn, consumer, claims, &fresh).await?;
        Ok(Claimed { txn, fresh, collisions })
    }

    pub(crate) async fn claim_in_callers_transaction(
        &self,
        conn: &mut PgConnection,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        let refused = |why: String| StoreError::new(ErrorClass::Failed, "claiming receipts", why);
        // Without one the receipts would be there before their effects, and a crash in between would lose the messages.
        if !conn.is_in_transaction() {
            return Err(refused(
                "the connection is not in a transaction: call `begin` on it first".to_owned(),
            ));
        }
        let fresh = self.write_receipts(conn, consumer, claims).await?;
        let collisions = self.collisions(conn, consumer, claims, &fresh).await?;
        if let Some(claim) = collisions.first().and_then(|at| claims.get(*at)) {
            return Err(refused(format!(
                "message {:?} of consumer {consumer} was not applied, but its receipt belongs to another message. Ids \
                 that collide are made on purpose: look at who sends them, and give the message another id",
                claim.message_id
            )));
        }
        Ok(fresh)
    }

    async fn write_receipts(
        &self,
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
        let some_tenant = claims.iter().any(|claim| !claim.tenant.is_empty());
        let sql = if some_tenant { CLAIM } else { CLAIM_WITHOUT_TENANT };
        let mut insert = self.query(sql).bind(consumer.as_str()).bind(now_ms()).bind(keys).bind(ids);
        if some_tenant {
            insert = insert.bind(sorted.iter().map(|claim| claim.tenant).collect::<Vec<_>>());
        }
        let written = insert.fetch_all(conn).await.map_err(own("claiming receipts"))?;
        if written.len() == claims.len() {
            return Ok(vec![true; claims.len()]);
        }
        let written = written
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<HashSet<Uuid>, _>>()
            .map_err(own("reading the claimed receipts"))?;
        Ok(claims.iter().map(|claim| written.contains(&key(claim))).collect())
    }

    /// The claims that found the receipt of another message. A batch without duplicates pays nothing for it.
    async fn collisions(
        &self,
        conn: &mut PgConnection,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
        fresh: &[bool],
    ) -> StoreResult<Vec<usize>> {
        let known: Vec<&Claim<'_>> =
            claims.iter().zip(fresh).filter(|(_, fresh)| !**fresh).map(|(claim, _)| claim).collect();
        if known.is_empty() {
            return Ok(Vec::new());
        }
        let others = self
            .query(COLLISIONS)
            .bind(consumer.as_str())
            .bind(known.iter().map(|claim| key(claim)).collect::<Vec<_>>())
            .bind(known.iter().map(|claim| claim.message_id).collect::<Vec<_>>())
            .bind(known.iter().map(|claim| claim.tenant).collect::<Vec<_>>())
            .fetch_all(conn)
            .await
            .map_err(own("comparing receipts"))?;
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let others = others
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<HashSet<Uuid>, _>>()
            .map_err(own("comparing receipts"))?;
        Ok((0..claims.len()).filter(|at| others.contains(&key(&claims[*at]))).collect())
    }

    pub(crate) async fn advance_and_commit(
        &self,
        txn: PgTxn,
        advance: Option<Advance<'_>>,
    ) -> StoreResult<()> {
        let last = match &advance {
            Some(advance) => format!("{AFTER_HANDLER}; {}", advance_message(advance)?),
            None => format!("{AFTER_HANDLER}; {STILL_OPEN}"),
        };
        // A deferred constraint of the application speaks up only now, so the error may well be the message's.
        txn.commit(&last).await.map_err(|error| {
            // Nobody knows whether it committed.
            let lost = is_outcome_unknown(&error);
            let failed = after_handler("committing")(error);
            if lost { StoreError { class: ErrorClass::Away, ..failed } } else { failed }
        })
    }
}

/// Whether the connection broke, here or behind a pooler, so that the answer to a COMMIT is missing.
fn is_outcome_unknown(error: &sqlx::Error) -> bool {
    use sqlx::Error as E;
    match error {
        E::Io(_) | E::Tls(_) | E::Protocol(_) | E::WorkerCrashed => true,
        E::Database(database) => {
            database.code().is_some_and(|state| state.starts_with("08") || state == "40003")
        }
        _ => false,
    }
}

fn key(claim: &Claim<'_>) -> Uuid {
    Uuid::from_bytes(*claim.key.as_bytes())
}

/// The clock of this process. Years that PostgreSQL cannot hold are nobody's time of day.
pub(crate) fn now_ms() -> i64 {
    const YEAR_9999: i64 = 253_402_300_799_999;
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).map_or(YEAR_9999, |ms| ms.min(YEAR_9999)))
}

fn advance_message(advance: &Advance<'_>) -> StoreResult<String> {
    let call = advance_call(
        "committing",
        advance.owner,
        &advance.progress,
        Some((advance.applied, advance.duplicates)),
    )?;
    let key = &advance.owner.key;
    let settled = advance.settled_attempt.map_or_else(String::new, |offset| {
        format!(
            "DELETE FROM oncebox_attempt WHERE consumer = {} AND topic = {} AND partition = {} AND \"offset\" = {offset}; ",
            literal(key.consumer.as_str()),
            literal(&key.topic),
            key.partition
        )
    });
    Ok(settled + &call)
}
