//! Opening a transaction with its receipts, and committing it with its position.

use std::collections::HashSet;

use oncebox_core::{Advance, Claim, Claimed, ConsumerName, ErrorClass, Ownership, StoreError, StoreResult};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::classify::{class_of_driver, own};
use crate::quote::literal;
use crate::store::PgStore;
use crate::txn::PgTxn;

/// The arrays come sorted by key: see [`PgStore::write_receipts`]. ON CONFLICT waits for a receipt that another open transaction holds, and goes by how that one ends.
const CLAIM: &str = "INSERT INTO oncebox_inbox (key, consumer, message_id, tenant) \
     SELECT k, $1, m, t FROM unnest($2::uuid[], $3::text[], $4::text[]) AS c(k, m, t) \
     ON CONFLICT (key) DO NOTHING RETURNING key";

/// The same for the many who have no tenants.
const CLAIM_WITHOUT_TENANT: &str = "INSERT INTO oncebox_inbox (key, consumer, message_id, tenant) \
     SELECT k, $1, m, '' FROM unnest($2::uuid[], $3::text[]) AS c(k, m) \
     ON CONFLICT (key) DO NOTHING RETURNING key";

impl PgStore {
    pub(crate) async fn claim_receipts(
        &self,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Claimed<PgTxn>> {
        let mut txn = self.begin().await?;
        let fresh = self.write_receipts(&mut txn, consumer, claims).await?;
        Ok(Claimed { txn, fresh })
    }

    pub(crate) async fn claim_in_callers_transaction(
        &self,
        conn: &mut PgConnection,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        // Without one the receipts would be there before their effects, and a crash in between would lose the messages.
        if !conn.is_in_transaction() {
            let why = "the connection is not in a transaction: call `begin` on it first";
            return Err(StoreError::new(ErrorClass::Failed, "claiming receipts", why));
        }
        self.write_receipts(conn, consumer, claims).await
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
        let key = |claim: &Claim<'_>| Uuid::from_bytes(*claim.key.as_bytes());
        // Rows are inserted in the order of the arrays. Sorted, two batches with the same messages in another order wait
        // for each other instead of deadlocking.
        let mut sorted: Vec<&Claim<'_>> = claims.iter().collect();
        sorted.sort_unstable_by_key(|claim| claim.key);
        let keys: Vec<Uuid> = sorted.iter().map(|claim| key(claim)).collect();
        let ids: Vec<&str> = sorted.iter().map(|claim| claim.message_id).collect();
        let some_tenant = claims.iter().any(|claim| !claim.tenant.is_empty());
        let sql = if some_tenant { CLAIM } else { CLAIM_WITHOUT_TENANT };
        let mut insert = self.query(sql).bind(consumer.as_str()).bind(keys).bind(ids);
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

    pub(crate) async fn advance_and_commit(
        &self,
        txn: PgTxn,
        advance: Option<Advance<'_>>,
    ) -> StoreResult<()> {
        let last = match &advance {
            Some(advance) => advance_message(advance)?,
            None => "SELECT oncebox_still_open()".to_owned(),
        };
        // A deferred constraint of the application speaks up only now, so the error may well be the message's.
        txn.commit(&last).await.map_err(|e| StoreError::new(class_of_driver(&e), "committing", e))
    }
}

/// Literals and no parameters, because only a message without parameters can carry several statements.
fn advance_message(advance: &Advance<'_>) -> StoreResult<String> {
    let Ownership { key, epoch, .. } = advance.owner;
    if key.topic.contains('\0') {
        return Err(StoreError::new(ErrorClass::Failed, "committing", "the topic contains NUL"));
    }
    let consumer = literal(key.consumer.as_str());
    let topic = literal(&key.topic);
    let partition = key.partition;
    let settled = advance.settled_attempt.map_or_else(String::new, |offset| {
        format!(
            "DELETE FROM oncebox_attempt WHERE consumer = {consumer} AND topic = {topic} \
             AND partition = {partition} AND \"offset\" = {offset}; "
        )
    });
    let next_offset = advance.next_offset.map_or_else(|| "NULL".to_owned(), |offset| offset.to_string());
    let Advance { applied, duplicates, .. } = advance;
    Ok(format!(
        "{settled}SELECT oncebox_advance({consumer}, {topic}, {partition}, {epoch}, {next_offset}, {applied}, \
         {duplicates})"
    ))
}
