//! Asks the server about each statement before the first message comes.

use oncebox_core::config::{Handler, PayloadKind};
use oncebox_core::{BadStatement, SqlHandlerError, StoreResult};
use sqlx::postgres::PgDatabaseError;
use sqlx::{AssertSqlSafe, PgConnection};

use super::failure::readable;
use super::function::{Function, Rendered, parameter_types, render};
use crate::classify::own;
use crate::quote::literal;
use crate::store::PgStore;

/// PostgreSQL refuses a function in SQL that should return rows and whose statement returns none.
const RETURNS_NO_ROWS: &str = "42P13";

/// Checks all statements, and finds out which of them return rows.
pub(super) async fn probe(
    store: &PgStore,
    handler: &Handler,
    payload: PayloadKind,
) -> Result<Function, SqlHandlerError> {
    let mut txn = store.begin_aside().await?;
    sqlx::raw_sql("SET LOCAL check_function_bodies = on")
        .execute(&mut *txn)
        .await
        .map_err(own("checking a handler's statements"))?;
    let types = parameter_types(handler, payload);
    let mut statements = render(handler);
    let mut bad = Vec::new();
    for (at, statement) in statements.iter_mut().enumerate() {
        let body = literal(&statement.sql);
        // A function in SQL is checked when it is created: tables, columns, types, privileges on types and functions.
        let void =
            format!("CREATE FUNCTION pg_temp.oncebox_probe({types}) RETURNS void LANGUAGE sql AS {body}");
        if let Err(error) = run(&mut txn, &void).await? {
            bad.push(bad_statement(at, statement, &error));
            continue;
        }
        let rows = format!(
            "CREATE FUNCTION pg_temp.oncebox_probe({types}) RETURNS SETOF record LANGUAGE sql AS {body}"
        );
        match run(&mut txn, &rows).await? {
            Ok(()) => statement.returns_rows = true,
            Err(error) if error.code() == RETURNS_NO_ROWS => {}
            Err(error) => bad.push(bad_statement(at, statement, &error)),
        }
    }
    if !bad.is_empty() {
        return Err(SqlHandlerError::Statements(bad));
    }
    let function = Function::new(handler, payload, &statements);
    if let Err(error) = run(&mut txn, &function.definition).await? {
        return Err(SqlHandlerError::Function(readable(&error)));
    }
    txn.rollback().await;
    Ok(function)
}

/// Runs a statement and undoes it. The outer error is trouble with the connection, the inner one the server's opinion.
async fn run(conn: &mut PgConnection, sql: &str) -> StoreResult<Result<(), Box<PgDatabaseError>>> {
    let failed = || own("checking a handler's statements");
    let message = format!("SAVEPOINT oncebox_probe; {sql}");
    let outcome = match sqlx::raw_sql(AssertSqlSafe(message)).execute(&mut *conn).await {
        Ok(_) => Ok(()),
        Err(sqlx::Error::Database(error)) => {
            Err(error.try_downcast().map_err(|other| failed()(sqlx::Error::Database(other)))?)
        }
        Err(error) => return Err(failed()(error)),
    };
    sqlx::raw_sql("ROLLBACK TO SAVEPOINT oncebox_probe").execute(conn).await.map_err(failed())?;
    Ok(outcome)
}

fn bad_statement(at: usize, statement: &Rendered<'_>, error: &PgDatabaseError) -> BadStatement {
    let sql = statement.step.statement.source().to_owned();
    BadStatement { number: at + 1, sql, reason: readable(error) }
}
