//! `each` on MySQL: a procedure, named by the hash of what it does, that is called once per batch.
//!
//! It is made when the handler is prepared. To make it commits, so that happens on a connection of its own; and a call that did not find it
//! holds its name until the end of the transaction, so it is made before the next call and not after the one that failed.

use std::sync::atomic::{AtomicBool, Ordering};

use oncebox_core::message::Message;
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::body::{INPUTS, Parts, body};
use super::routine::{self, Made};
use super::values::{Values, Wanted, to_json};
use super::{events, server::Server};
use crate::store::MysqlStore;
use crate::wording::said;

/// A handler that runs for every message, in a procedure.
#[derive(Debug)]
pub(super) struct Procedure {
    pub(super) wanted: Wanted,
    name: String,
    /// What stands behind `CREATE PROCEDURE name`, but for the comment.
    definition: String,
    call: String,
    events: bool,
    is_missing: AtomicBool,
}

impl Procedure {
    /// Makes the procedure. `None` if this user may not, and nobody else has.
    pub(super) async fn make(
        store: &MysqlStore,
        server: &Server,
        parts: &Parts<'_>,
    ) -> StoreResult<Option<Self>> {
        let inputs = INPUTS.map(|(name, kind)| format!("IN {name} {kind}"));
        let definition =
            format!("({})\nSQL SECURITY INVOKER {{comment}}\nBEGIN\n{}END", inputs.join(", "), body(parts));
        // A routine keeps the mode and the collations that it was made with.
        let digest = Sha256::digest(format!("{}\n{definition}", server.modes));
        let name =
            digest.iter().take(12).fold(routine::PREFIX.to_owned(), |name, byte| format!("{name}{byte:02x}"));
        let procedure = Self {
            wanted: parts.wanted.clone(),
            call: format!("CALL {name}(?, ?, ?)"),
            name,
            definition,
            events: parts.events,
            is_missing: AtomicBool::new(false),
        };
        match procedure.create(store).await? {
            Made::Ready => Ok(Some(procedure)),
            Made::Denied => Ok(None),
        }
    }

    async fn create(&self, store: &MysqlStore) -> StoreResult<Made> {
        routine::make(store, &self.name, &self.definition).await
    }

    /// Makes it again if the last call did not find it.
    pub(super) async fn bring_back(&self, store: &MysqlStore) -> StoreResult<()> {
        if !self.is_missing.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.create(store).await? {
            Made::Ready => self.is_missing.store(false, Ordering::Relaxed),
            Made::Denied => {
                return Err(StoreError::new(
                    ErrorClass::Environment,
                    "calling a handler in SQL",
                    format!(
                        "its procedure {} is gone, and this user may not make it again: restart, or GRANT CREATE ROUTINE",
                        self.name
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Notes that a call did not find it. Somebody has dropped it; no message is to blame, and the next try finds it again.
    pub(super) fn is_gone(&self, error: sqlx::Error) -> StoreError {
        self.is_missing.store(true, Ordering::Relaxed);
        said(ErrorClass::Transient, "calling a handler in SQL", error)
    }

    pub(super) async fn apply(
        &self,
        conn: &mut MySqlConnection,
        fresh: &[Message],
        values: &[Values<'_>],
    ) -> sqlx::Result<()> {
        let consumer = self.events.then(events::consumer);
        let count = i64::try_from(fresh.len()).unwrap_or(i64::MAX);
        let call = sqlx::query(AssertSqlSafe(self.call.clone()));
        call.bind(to_json(values)).bind(count).bind(consumer).execute(conn).await.map(drop)
    }
}
