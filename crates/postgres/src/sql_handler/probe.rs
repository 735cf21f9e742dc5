//! Asks the server about each statement before the first message comes.

use oncebox_core::config::{Handler, PayloadKind};
use oncebox_core::{BadStatement, ErrorClass, SqlHandlerError, StoreError, StoreResult};
use sqlx::Row;
use sqlx::error::DatabaseError;

use super::call::parameter_types;
use super::failure::with_details;
use super::function::{Function, Rendered, render};
use crate::classify::{class_of_state, own};
use crate::quote::literal;
use crate::store::PgStore;
use crate::txn::PgTxn;

/// PostgreSQL refuses a function in SQL that should return rows and whose statement returns none.
const RETURNS_NO_ROWS: &str = "42P13";
/// What [`TRY`] says when there was no error.
const WORKED: &str = "OBX00";

/// Runs a statement, undoes it and says how it went. The server's log does not see an error that is caught.
const TRY: &str = "SET LOCAL check_function_bodies = on; \
     CREATE OR REPLACE FUNCTION pg_temp.oncebox_try(text) RETURNS text[] LANGUAGE plpgsql AS $$ \
     DECLARE message text; detail text; hint text; \
     BEGIN \
         EXECUTE $1; \
         RAISE EXCEPTION USING ERRCODE = 'OBX00'; \
     EXCEPTION WHEN OTHERS THEN \
         GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT; \
         RETURN ARRAY[SQLSTATE, message, detail, hint]; \
     END $$";

/// Checks all statements, and finds out which of them return rows.
pub(super) async fn probe(
    store: &PgStore,
    handler: &Handler,
    payload: PayloadKind,
) -> Result<Function, SqlHandlerError> {
    let mut txn = store.begin_aside().await?;
    if let Err(error) = sqlx::raw_sql(TRY).execute(&mut *txn).await {
        return Err(no_functions(error));
    }
    let types = parameter_types(handler, payload);
    let mut statements = render(handler);
    let mut bad = Vec::new();
    for (at, statement) in statements.iter_mut().enumerate() {
        let body = literal(&statement.sql);
        let create = |returns: &str| {
            format!("CREATE FUNCTION pg_temp.oncebox_probe({types}) RETURNS {returns} LANGUAGE sql AS {body}")
        };
        // A function in SQL is checked when it is created: tables, columns, types.
        if let Err(refusal) = attempt(store, &mut txn, &create("void")).await? {
            bad.push(bad_statement(at, statement, refusal));
            continue;
        }
        match attempt(store, &mut txn, &create("SETOF record")).await? {
            Ok(()) => statement.returns_rows = true,
            Err(refusal) if refusal.state == RETURNS_NO_ROWS => {}
            Err(refusal) => bad.push(bad_statement(at, statement, refusal)),
        }
    }
    if !bad.is_empty() {
        return Err(SqlHandlerError::Statements(bad));
    }
    let function = Function::new(handler, payload, &statements);
    if let Err(refusal) = attempt(store, &mut txn, &function.definition).await? {
        return Err(SqlHandlerError::Function(refusal.text));
    }
    txn.rollback().await;
    Ok(function)
}

/// A missing privilege is for an operator; the rest is trouble with the database.
fn no_functions(error: sqlx::Error) -> SqlHandlerError {
    let denied = error.as_database_error().and_then(DatabaseError::code).as_deref() == Some("42501");
    if denied {
        let fix = "GRANT TEMPORARY ON DATABASE … TO …";
        return SqlHandlerError::Function(format!("this role may not create temporary functions: {fix}"));
    }
    own("checking a handler's statements")(error).into()
}

/// Why the server refuses a statement.
struct Refusal {
    state: String,
    text: String,
}

/// The outer error is trouble with the database, the inner one its opinion.
async fn attempt(store: &PgStore, txn: &mut PgTxn, sql: &str) -> StoreResult<Result<(), Refusal>> {
    let failed = || own("checking a handler's statements");
    let row = store
        .query("SELECT pg_temp.oncebox_try($1)")
        .bind(sql)
        .fetch_one(&mut **txn)
        .await
        .map_err(failed())?;
    let [state, message, detail, hint]: [String; 4] = row.try_get(0).map_err(failed())?;
    if state == WORKED {
        return Ok(Ok(()));
    }
    let text = with_details(&message, [&*detail, &*hint], &state);
    match class_of_state(&state) {
        ErrorClass::Failed => Ok(Err(Refusal { state, text })),
        class => Err(StoreError::new(class, "checking a handler's statements", text)),
    }
}

fn bad_statement(at: usize, statement: &Rendered<'_>, refusal: Refusal) -> BadStatement {
    let sql = statement.step.statement.source().to_owned();
    BadStatement { number: at + 1, sql, reason: refusal.text }
}
