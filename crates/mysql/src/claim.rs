//! Receipts: written first, all of a batch together.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use oncebox_core::inbox::Fingerprint;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Claim, ErrorClass, StoreError, StoreResult};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Connection, Either, MySqlConnection, Row};

use crate::classify::Context;
use crate::quote::{push_bytes, push_text};
use crate::store::MysqlStore;
use crate::time::{from_ms, now_ms};
use crate::txn::{MysqlTxn, Trace};

const DOING: &str = "claiming receipts";

/// The longest message of receipts. Every server takes it, and `check` looks whether this one does.
pub(crate) const MAX_MESSAGE_BYTES: usize = 512 * 1024;

/// When a batch was claimed, on its connection. A handler's own claims have another variable.
pub(crate) const BATCH_NOW: &str = "@oncebox_batch_now";
const BARE_NOW: &str = "@oncebox_claim_now";

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

/// Opens the transaction and writes the receipts, in one round trip unless they are very many.
pub(crate) async fn claim(
    store: &MysqlStore,
    txn: &mut MysqlTxn,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Found> {
    let mut messages = messages(&store.inner.begin, BATCH_NOW, consumer, claims).into_iter();
    let mut there = HashMap::new();
    if let Some(first) = messages.next() {
        let answer = send(txn, first.sql).await.context_of_claim(DOING)?;
        note(&answer, first.receipts, &mut there)?;
    }
    for message in messages {
        let answer = send(txn, message.sql).await.context(DOING)?;
        note(&answer, message.receipts, &mut there)?;
    }
    let found = found(consumer, claims, &there);
    let fresh: Vec<_> =
        claims.iter().zip(&found.fresh).filter(|(_, fresh)| **fresh).map(|(claim, _)| claim.key).collect();
    if !fresh.is_empty() {
        txn.leaves(Trace::Receipts(fresh));
    }
    Ok(found)
}

/// The same in a transaction of somebody else.
pub(crate) async fn claim_within(
    conn: &mut MySqlConnection,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    let refused = |why: String| StoreError::new(ErrorClass::Failed, DOING, why);
    // Without one the receipts would be there before their effects, and a crash in between would lose the messages.
    if !conn.is_in_transaction() {
        return Err(refused("the connection is not in a transaction: call `begin` on it first".to_owned()));
    }
    let mut there = HashMap::new();
    for message in messages("", BARE_NOW, consumer, claims) {
        let answer = send(conn, message.sql).await.context(DOING)?;
        note(&answer, message.receipts, &mut there)?;
    }
    let Found { fresh, collisions, .. } = found(consumer, claims, &there);
    if let Some(other) = collisions.first().and_then(|at| claims.get(*at)) {
        return Err(refused(format!(
            "message {:?} of consumer {consumer} was not applied, but its receipt belongs to another message. Ids \
             that collide are made on purpose: look at who sends them, and give the message another id",
            other.message_id
        )));
    }
    Ok(fresh)
}

/// A message to the server, and how many receipts it writes.
struct Message {
    sql: String,
    receipts: usize,
}

/// The statements of a claim. Receipts are written in the order of their keys: two batches with the same messages in another
/// order then wait for each other instead of deadlocking.
fn messages(begin: &str, now: &str, consumer: &ConsumerName, claims: &[Claim<'_>]) -> Vec<Message> {
    let mut sorted: Vec<&Claim<'_>> = claims.iter().collect();
    sorted.sort_unstable_by_key(|claim| claim.key);
    let mut messages = vec![Message { sql: begin.to_owned(), receipts: 0 }];
    for part in parts(&sorted) {
        let statements = statements(now, part);
        match messages.last_mut() {
            Some(first) if first.receipts == 0 => {
                first.sql.push_str(&set_now(now, consumer));
                first.sql.push_str(&statements);
                first.receipts = part.len();
            }
            _ => messages.push(Message { sql: statements, receipts: part.len() }),
        }
    }
    if let Some(message) = messages.first_mut().filter(|message| message.receipts == 0) {
        // There is nothing to claim, and a message must not end in a semicolon.
        message.sql.push_str("DO 0");
    }
    messages
}

/// As many receipts as fit into one message.
fn parts<'s, 'c>(sorted: &'s [&'c Claim<'c>]) -> Vec<&'s [&'c Claim<'c>]> {
    // Both statements name the key, and text takes two digits for a byte.
    let bytes = |claim: &Claim<'_>| 2 * (claim.message_id.len() + claim.tenant.len() + 32) + 300;
    let (mut parts, mut from, mut size) = (Vec::new(), 0, 0);
    for (at, claim) in sorted.iter().enumerate() {
        size += bytes(claim);
        if size > MAX_MESSAGE_BYTES && at > from {
            parts.push(&sorted[from..at]);
            (from, size) = (at, bytes(claim));
        }
    }
    if from < sorted.len() {
        parts.push(&sorted[from..]);
    }
    parts
}

/// The later of two clocks dates the receipts, so that one that was set back does not make them look old.
fn set_now(now: &str, consumer: &ConsumerName) -> String {
    let ours = now_ms();
    let mut sql = format!(
        "SET {now} = GREATEST(UTC_TIMESTAMP(6), TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {ours} * 1000 MICROSECOND), \
         @oncebox_claim_consumer = "
    );
    push_text(&mut sql, consumer.as_str());
    sql.push_str("; ");
    sql
}

/// Writes receipts, and answers with a row for each that was there before: its key, whose it is, and what its payload was if
/// that is compared. MariaDB tells with the statement itself, with a row of NULLs for each that is new; MySQL is asked again.
///
/// ON DUPLICATE KEY UPDATE waits for a receipt that another open transaction holds, and goes by how that one ends. It changes
/// the row, and that makes it visible to us, even one that was committed after our snapshot. It hides no other error, as
/// INSERT IGNORE would.
fn statements(now: &str, claims: &[&Claim<'_>]) -> String {
    let compares = claims.iter().any(|claim| claim.fingerprint.is_some());
    let mut sql = String::with_capacity(claims.len() * 200);
    sql.push_str("INSERT INTO oncebox_inbox (`key`, processed_at, consumer, tenant, message_id");
    sql.push_str(if compares { ", fingerprint) VALUES " } else { ") VALUES " });
    for (at, claim) in claims.iter().enumerate() {
        sql.push_str(if at == 0 { "(" } else { ", (" });
        push_bytes(&mut sql, claim.key.as_bytes());
        sql.push_str(", ");
        sql.push_str(now);
        sql.push_str(", @oncebox_claim_consumer, ");
        push_text(&mut sql, claim.tenant);
        sql.push_str(", ");
        push_text(&mut sql, claim.message_id);
        match &claim.fingerprint {
            Some(fingerprint) => {
                sql.push_str(", ");
                push_bytes(&mut sql, fingerprint.as_bytes());
            }
            None if compares => sql.push_str(", NULL"),
            None => {}
        }
        sql.push(')');
    }
    sql.push_str(
        " ON DUPLICATE KEY UPDATE copies = copies + 1 /*M! RETURNING IF(copies > 0, `key`, NULL), \
         IF(copies > 0, consumer, NULL), IF(copies > 0, tenant, NULL), IF(copies > 0, message_id, NULL)",
    );
    sql.push_str(if compares { ", IF(copies > 0, fingerprint, NULL)" } else { "" });
    sql.push_str(" */; /*!80000 SELECT `key`, consumer, tenant, message_id");
    sql.push_str(if compares { ", fingerprint" } else { "" });
    sql.push_str(" FROM oncebox_inbox WHERE copies > 0 AND `key` IN (");
    for (at, claim) in claims.iter().enumerate() {
        if at > 0 {
            sql.push(',');
        }
        push_bytes(&mut sql, claim.key.as_bytes());
    }
    sql.push_str(") */ /*M! DO 0 */");
    sql
}

/// Whose the receipts are that were there before.
type There = HashMap<[u8; 16], Whose>;

struct Whose {
    consumer: String,
    tenant: String,
    message_id: String,
    fingerprint: Option<Fingerprint>,
}

/// What the server answered to a message.
struct Answer {
    rows: Vec<MySqlRow>,
    affected: u64,
}

async fn send(conn: &mut MySqlConnection, sql: String) -> sqlx::Result<Answer> {
    let mut answer = Answer { rows: Vec::new(), affected: 0 };
    let mut results = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(conn);
    while let Some(result) = results.try_next().await? {
        match result {
            Either::Left(done) => answer.affected += done.rows_affected(),
            Either::Right(row) => answer.rows.push(row),
        }
    }
    Ok(answer)
}

/// Adds the receipts that were there before. A proxy that takes comments out of statements would take out what asks for them:
/// then the numbers do not fit, and nothing may be called fresh. Each receipt that was there counts twice.
fn note(answer: &Answer, receipts: usize, there: &mut There) -> StoreResult<()> {
    let rows = answer.rows.len();
    if rows != receipts && answer.affected != (receipts + rows) as u64 {
        return Err(StoreError::new(
            ErrorClass::Environment,
            DOING,
            format!(
                "the server answered with {rows} rows and {} changes to {receipts} receipts. Something between oncebox and \
                 the server seems to remove comments from statements: let it pass them on as they are",
                answer.affected
            ),
        ));
    }
    for row in &answer.rows {
        let Some(key) = row.try_get::<Option<Vec<u8>>, _>(0).context(DOING)? else { continue };
        let Ok(key) = <[u8; 16]>::try_from(key) else { continue };
        let whose = Whose {
            consumer: row.try_get(1).context(DOING)?,
            tenant: row.try_get(2).context(DOING)?,
            message_id: row.try_get(3).context(DOING)?,
            fingerprint: fingerprint(row).context(DOING)?,
        };
        there.insert(key, whose);
    }
    Ok(())
}

/// What the payload was: in the fifth column, if it was asked for.
fn fingerprint(row: &MySqlRow) -> sqlx::Result<Option<Fingerprint>> {
    if row.len() < 5 {
        return Ok(None);
    }
    let bytes: Option<Vec<u8>> = row.try_get(4)?;
    Ok(bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(Fingerprint::from))
}

fn found(consumer: &ConsumerName, claims: &[Claim<'_>], there: &There) -> Found {
    let mut found = Found { fresh: Vec::with_capacity(claims.len()), ..Found::default() };
    for (at, claim) in claims.iter().enumerate() {
        let receipt = there.get(claim.key.as_bytes());
        found.fresh.push(receipt.is_none());
        let Some(whose) = receipt else { continue };
        // Compared here and not by the server, whose collations know equal texts that are not the same.
        let of_another = whose.message_id != claim.message_id
            || whose.tenant != claim.tenant
            || whose.consumer != consumer.as_str();
        if of_another {
            found.collisions.push(at);
        } else if let Some(fingerprint) = whose.fingerprint {
            found.fingerprints.push((at, fingerprint));
        }
    }
    found
}

/// Not the row of another message: its receipt is of the same key, and not ours to touch.
const RENEW: &str = concat!(
    "INSERT INTO oncebox_inbox (`key`, processed_at, consumer, tenant, message_id) \
     VALUES (?, GREATEST(UTC_TIMESTAMP(6), ",
    from_ms!("?"),
    "), ?, ?, ?) ON DUPLICATE KEY UPDATE processed_at = IF(CAST(consumer AS BINARY) = CAST(VALUES(consumer) AS BINARY) \
         AND CAST(tenant AS BINARY) = CAST(VALUES(tenant) AS BINARY) \
         AND CAST(message_id AS BINARY) = CAST(VALUES(message_id) AS BINARY), \
         GREATEST(processed_at, VALUES(processed_at)), processed_at)"
);

/// Writes a receipt, or makes the one that exists as young as a new one.
pub(crate) async fn renew(
    store: &MysqlStore,
    txn: &mut MysqlTxn,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<()> {
    store
        .query(RENEW)
        .bind(claim.key.as_bytes().as_slice())
        .bind(now_ms())
        .bind(consumer.as_str())
        .bind(claim.tenant)
        .bind(claim.message_id)
        .execute(&mut **txn)
        .await
        .context("renewing a receipt")?;
    Ok(())
}
