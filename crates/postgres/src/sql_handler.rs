//! Handlers written in SQL.

mod arguments;
mod call;
mod events;
mod failure;
mod function;
mod jsonb;
mod mentions;
mod payload;
mod probe;
mod qualify;
mod rights;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use oncebox_core::inbox::{Apply, Failure};
use oncebox_core::message::Message;
use oncebox_core::outbox::events_written;
use oncebox_core::store::{ErrorClass, StoreError};
use oncebox_sql::{Handler, PayloadKind, Sql, SqlHandlerError, SqlStore, StatementError};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::classify::Context;
use crate::store::PgStore;
use crate::wording::said;
use arguments::Columns;
use function::Function;

/// A handler of SQL statements. All of them run on the server, in one call per batch.
///
/// `each`: for every message, in order, the statements in order. `batch`: every statement once, over the relation
/// `messages`. `:payload` is `jsonb`, `text` or `bytea`; `:headers` is a `jsonb` object; `:timestamp` is `timestamptz`.
///
/// Statements that call `oncebox_emit` or `oncebox_emit_bytes` write events. Those of `each` know the message that they
/// follow from.
///
/// A statement may set the search path or the role for those behind it, as
/// `SELECT set_config('search_path', :tenant, true)` does. What it sets ends with the transaction.
///
/// A message is rejected, without another attempt, if a statement touches another number of rows than its rule allows, or
/// if it carries something that PostgreSQL cannot hold: a payload that is not JSON, a key that is not text.
pub struct SqlHandler {
    store: PgStore,
    function: Function,
    columns: Columns,
    writes_events: bool,
    sources: Vec<String>,
    /// Whether the function has to be looked for in every transaction, because connections are not ours to prepare.
    looks_each_time: AtomicBool,
}

impl fmt::Debug for SqlHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlHandler").field("statements", &self.sources).finish_non_exhaustive()
    }
}

impl SqlHandler {
    /// Checks all statements against the database and makes the handler ready on every connection of the store.
    ///
    /// # Errors
    /// [`SqlHandlerError::Statements`] lists every statement that the database refuses, with its number and the reason. If
    /// all of them are refused for what the database lacks (a table, a right), it is the source of an
    /// [`SqlHandlerError::Store`] of the class [`ErrorClass::Environment`]: it may be mended, and is worth another try.
    pub async fn prepare(
        store: &PgStore,
        handler: &Handler,
        payload: PayloadKind,
    ) -> Result<Self, SqlHandlerError> {
        let function = probe::probe(store, handler, payload).await?;
        let sessions = store.sessions();
        if let Some(sessions) = sessions {
            sessions.add(function.definition.clone());
        }
        Ok(Self {
            store: store.clone(),
            function,
            columns: Columns::new(handler, payload),
            writes_events: events::are_written(handler),
            sources: handler.steps().iter().map(|step| step.sql.source().to_owned()).collect(),
            looks_each_time: AtomicBool::new(sessions.is_none()),
        })
    }

    async fn call(&self, conn: &mut PgConnection, fresh: &[Message]) -> Result<(), Failure> {
        let arguments = self.columns.arguments(fresh)?;
        if self.looks_each_time.load(Ordering::Relaxed) {
            self.define_if_missing(conn).await.map_err(Failure::of_batch)?;
        }
        let called = sqlx::query_with(AssertSqlSafe(self.function.call.clone()), arguments)
            .persistent(self.store.persistent())
            .fetch_one(conn)
            .await
            .and_then(|row| row.try_get::<i64, _>(0));
        match called {
            Ok(_) => Ok(()),
            Err(error) if failure::is_missing_function(&error) => {
                self.looks_each_time.store(true, Ordering::Relaxed);
                // The transaction is lost; the next one defines it first. No message is to blame.
                let error = said(ErrorClass::Transient, "calling a handler in SQL", error);
                Err(Failure::of_batch(error))
            }
            Err(error) => Err(failure::failure(&self.function, &self.sources, fresh.len(), error)),
        }
    }

    /// Defining it anew every time would bloat the server's catalog.
    async fn define_if_missing(&self, conn: &mut PgConnection) -> Result<(), StoreError> {
        let doing = "defining a handler's function";
        let missing: bool = self
            .store
            .query("SELECT to_regprocedure($1) IS NULL")
            .bind(&self.function.signature)
            .fetch_one(&mut *conn)
            .await
            .and_then(|row| row.try_get(0))
            .context(doing)?;
        if missing {
            let definition = AssertSqlSafe(self.function.definition.clone());
            sqlx::raw_sql(definition).execute(conn).await.context(doing)?;
        }
        Ok(())
    }
}

impl SqlStore for PgStore {
    type Handler = SqlHandler;

    async fn prepare(&self, handler: &Handler, payload: PayloadKind) -> Result<SqlHandler, SqlHandlerError> {
        SqlHandler::prepare(self, handler, payload).await
    }

    /// What a statement means here is never silent: the database is asked when it is prepared.
    fn check_dialect(_sql: &Sql) -> Result<(), StatementError> {
        Ok(())
    }
}

impl Apply<PgStore> for SqlHandler {
    async fn apply(&self, conn: &mut PgConnection, fresh: &[Message]) -> Result<(), Failure> {
        if fresh.is_empty() {
            return Ok(());
        }
        // A failure of the messages passes through as a value, so that only silence becomes an error of the store.
        let call = async { Ok(self.call(conn, fresh).await) };
        self.store.patiently("calling a handler in SQL", call).await.map_err(Failure::of_batch)??;
        if self.writes_events {
            events_written();
        }
        Ok(())
    }
}
