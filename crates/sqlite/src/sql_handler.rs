//! Handlers written in SQL.

mod batch;
mod dialect;
mod each;
mod error;
mod statements;
mod values;

use oncebox_core::inbox::{Apply, Failure};
use oncebox_core::message::Message;
use oncebox_core::outbox::events_written;
use oncebox_sql::{BadStatement, Handler, PayloadKind, Sql, SqlHandlerError, SqlStore, StatementError, Step};
use sqlx::SqliteConnection;

use crate::store::SqliteStore;
use batch::Batch;
use each::Each;

/// A handler of SQL statements.
///
/// `each`: for every message, in order, the statements in order. `batch`: every statement once, over the relation
/// `messages`. `:payload` is text (`json`, `text`) or a blob (`bytes`); `:headers` is the text of a JSON object;
/// `:timestamp` is ISO 8601 text in UTC with milliseconds.
///
/// A statement emits an event with a plain `INSERT INTO oncebox_outbox (topic, key, payload, causation_id) VALUES (…, :id)`.
///
/// A message is rejected, without another attempt, if a statement touches another number of rows than its rule allows, or
/// if a statement uses something of it that is not what it should be: a payload that is not JSON, a key that is not text.
#[derive(Debug)]
pub struct SqlHandler {
    plan: Plan,
    /// A statement names the outbox, so a relay has something to do after the commit.
    writes_events: bool,
}

#[derive(Debug)]
enum Plan {
    Each(Each),
    Batch(Batch),
}

impl SqlHandler {
    /// Checks all statements against the database.
    ///
    /// # Errors
    /// [`SqlHandlerError::Statements`] lists every statement that SQLite refuses, with its number and the reason.
    pub async fn prepare(
        store: &SqliteStore,
        handler: &Handler,
        payload: PayloadKind,
    ) -> Result<Self, SqlHandlerError> {
        refuse_foreign(handler.steps())?;
        let names_outbox = |step: &Step| step.sql.source().to_ascii_lowercase().contains("oncebox_outbox");
        let writes_events = handler.steps().iter().any(names_outbox);
        let mut txn = store.begin().await?;
        let plan = match handler {
            Handler::Each(steps) => Plan::Each(Each::prepare(&mut txn, steps, payload).await?),
            Handler::Batch(steps) => Plan::Batch(Batch::prepare(&mut txn, steps, payload).await?),
        };
        txn.rollback().await;
        Ok(Self { plan, writes_events })
    }
}

/// SQLite itself would not refuse them.
fn refuse_foreign(steps: &[Step]) -> Result<(), SqlHandlerError> {
    let refusal = |(step, number): (&Step, usize)| {
        let reason = dialect::check(&step.sql).err()?.to_string();
        Some(BadStatement { number, sql: step.sql.source().to_owned(), reason })
    };
    let bad: Vec<_> = steps.iter().zip(1..).filter_map(refusal).collect();
    if bad.is_empty() { Ok(()) } else { Err(SqlHandlerError::Statements(bad)) }
}

impl SqlStore for SqliteStore {
    type Handler = SqlHandler;

    async fn prepare(&self, handler: &Handler, payload: PayloadKind) -> Result<SqlHandler, SqlHandlerError> {
        SqlHandler::prepare(self, handler, payload).await
    }

    fn check_dialect(sql: &Sql) -> Result<(), StatementError> {
        dialect::check(sql)
    }
}

impl Apply<SqliteStore> for SqlHandler {
    async fn apply(&self, conn: &mut SqliteConnection, fresh: &[Message]) -> Result<(), Failure> {
        if fresh.is_empty() {
            return Ok(());
        }
        match &self.plan {
            Plan::Each(each) => each.apply(conn, fresh).await,
            Plan::Batch(batch) => batch.apply(conn, fresh).await,
        }?;
        if self.writes_events {
            events_written();
        }
        Ok(())
    }
}
