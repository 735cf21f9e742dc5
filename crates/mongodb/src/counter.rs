//! Ascending numbers: for events, dead letters and the audit.
//!
//! They are drawn outside of the transaction that uses them, or two transactions could never write at the same time. A batch
//! draws when it has done everything else, so after it began: whoever sees what another one has committed gets higher numbers. A
//! transaction begins with its first operation, so in one of the application's own an event that is emitted before anything
//! else was read or written draws before, and may have a lower number than one that the transaction then sees.
//! One member's confirmation is enough: the log of a replica set is in order, and what is confirmed by the majority has every
//! number before it confirmed too. Numbers that were drawn for a transaction that failed are left out.

use mongodb::Database;
use mongodb::bson::doc;
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};

use crate::classify::Context;

const COUNTERS: &str = "oncebox_counter";

/// The events of the outbox.
pub(crate) const OUTBOX: &str = "outbox";
/// The dead letters.
pub(crate) const DEAD: &str = "dead";
/// The audit.
pub(crate) const AUDIT: &str = "audit";

/// Draws `count` numbers and returns the first of them.
pub(crate) async fn draw(database: &Database, of: &str, count: usize) -> StoreResult<i64> {
    let doing = "drawing numbers";
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    // As a command, which the driver does not repeat: then the server notes nothing about the session. With a note, the next
    // transaction in that session may begin at a moment before it, and fails at its commit with a conflict.
    let command = doc! {
        "findAndModify": COUNTERS, "query": { "_id": of }, "update": { "$inc": { "last": count } }, "new": true,
        "writeConcern": { "w": 1 },
    };
    let answer = database.run_command(command).await.context(doing)?;
    let drawn = answer.get_document("value").ok();
    let last = drawn.and_then(|counter| counter.get_i64("last").ok());
    last.map(|last| last - count + 1).ok_or_else(|| {
        StoreError::new(
            ErrorClass::Environment,
            doing,
            format!("oncebox_counter has no number for {of}: run `oncebox migrate`"),
        )
    })
}
