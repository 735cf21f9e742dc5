//! Asks the server about each statement before the first message comes.

use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use oncebox_sql::{BadStatement, SqlHandlerError};
use oncebox_sql::{Handler, PayloadKind};
use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Row};

use super::call::parameter_types;
use super::function::{Function, Rendered, Runs, render};
use super::rights;
use crate::classify::{Context, DENIED, class_of_own, class_of_state};
use crate::quote::literal;
use crate::store::PgStore;
use crate::txn::PgTxn;
use crate::wording::{said, with_details};

/// PostgreSQL refuses a function in SQL that should return rows and whose statement returns none.
const RETURNS_NO_ROWS: &str = "42P13";
/// What [`trying`] says when there was no error.
const WORKED: &str = "OBX00";

/// Runs a statement without parameters.
const TRY: &str = "oncebox_try";
/// Runs a statement with NULL for each of its parameters.
const TRY_WITH_NULLS: &str = "oncebox_try_with_nulls";

/// Defines a function that runs a statement, undoes it and says how it went. The server's log does not see an error that is
/// caught.
fn trying(name: &str, using: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION pg_temp.{name}(text) RETURNS text[] LANGUAGE plpgsql AS $$ \
         DECLARE message text; detail text; hint text; \
         BEGIN \
             EXECUTE $1{using}; \
             RAISE EXCEPTION USING ERRCODE = '{WORKED}'; \
         EXCEPTION WHEN OTHERS THEN \
             GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT; \
             RETURN ARRAY[SQLSTATE, message, detail, hint]; \
         END $$"
    )
}

/// Where our own functions are.
const SCHEMA: &str = "SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.oid = to_regclass('oncebox_outbox')";

/// Checks all statements, and finds out how each of them runs.
pub(super) async fn probe(
    store: &PgStore,
    handler: &Handler,
    payload: PayloadKind,
) -> Result<Function, SqlHandlerError> {
    let mut txn = store.begin_aside().await?;
    let types = parameter_types(handler, payload);
    let prepare = format!(
        "SET LOCAL check_function_bodies = on; {}; {}",
        trying(TRY, ""),
        trying(TRY_WITH_NULLS, &rights::nulls(&types))
    );
    if let Err(error) = sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *txn).await {
        return Err(no_functions(error));
    }
    let mut statements = render(handler, our_schema(store, &mut txn).await?.as_deref());
    let mut bad = Vec::new();
    let mut moved = false;
    for (at, statement) in statements.iter_mut().enumerate() {
        if let Err(refusal) = look_at(store, &mut txn, &types, statement).await? {
            if moved && refusal.class == ErrorClass::Environment {
                // It may well be there where an earlier statement goes.
                statement.runs = Runs::FromText;
            } else {
                bad.push((refusal.class, bad_statement(at, statement, refusal)));
            }
        }
        moved |= rights::moves(&statement.sql);
    }
    if !bad.is_empty() {
        return Err(refused(bad));
    }
    let function = Function::new(handler, payload, &statements);
    if let Err(refusal) = attempt(store, &mut txn, TRY, &function.definition).await? {
        return Err(SqlHandlerError::Function(refusal.text));
    }
    txn.rollback().await;
    Ok(function)
}

async fn our_schema(store: &PgStore, txn: &mut PgTxn) -> StoreResult<Option<String>> {
    let doing = "checking a handler's statements";
    let row = store.query(SCHEMA).fetch_optional(&mut **txn).await.context(doing)?;
    row.map(|row| row.try_get(0)).transpose().context(doing)
}

/// Checks a statement: tables, columns, types, and the rights of this role.
async fn look_at(
    store: &PgStore,
    txn: &mut PgTxn,
    types: &str,
    statement: &mut Rendered<'_>,
) -> StoreResult<Result<(), Refusal>> {
    let body = literal(&statement.sql);
    let create = |returns: &str| {
        format!("CREATE FUNCTION pg_temp.oncebox_probe({types}) RETURNS {returns} LANGUAGE sql AS {body}")
    };
    // A function in SQL is checked when it is created: tables, columns, types.
    if let Err(refusal) = attempt(store, txn, TRY, &create("void")).await? {
        return Ok(Err(refusal));
    }
    match attempt(store, txn, TRY, &create("SETOF record")).await? {
        Ok(()) => statement.runs = Runs::ForRows,
        Err(refusal) if refusal.state == RETURNS_NO_ROWS => {}
        Err(refusal) => return Ok(Err(refusal)),
    }
    // A plan is made with the rights checked, and nothing of it runs. What cannot be explained needs no plan.
    match attempt(store, txn, TRY_WITH_NULLS, &format!("EXPLAIN {}", statement.sql)).await? {
        Err(refusal) if refusal.state == DENIED => {
            let role = rights::role(store, txn).await?;
            let grant = rights::advice(statement.step.sql.first_keyword(), &role);
            Ok(Err(Refusal { text: format!("{}; {grant}", refusal.text), ..refusal }))
        }
        _ => Ok(Ok(())),
    }
}

/// Statements that only the database keeps from running may run later.
fn refused(bad: Vec<(ErrorClass, BadStatement)>) -> SqlHandlerError {
    let may_come = bad.iter().all(|(class, _)| *class == ErrorClass::Environment);
    let bad = SqlHandlerError::Statements(bad.into_iter().map(|(_, bad)| bad).collect());
    if may_come {
        return StoreError::new(ErrorClass::Environment, "the database lacks what the handler needs", bad)
            .into();
    }
    bad
}

/// A missing privilege is for an operator; the rest is trouble with the database.
fn no_functions(error: sqlx::Error) -> SqlHandlerError {
    let denied = error.as_database_error().and_then(DatabaseError::code).as_deref() == Some("42501");
    if denied {
        let fix = "GRANT TEMPORARY ON DATABASE … TO …";
        return SqlHandlerError::Function(format!("this role may not create temporary functions: {fix}"));
    }
    said(class_of_own(&error), "checking a handler's statements", error).into()
}

/// Why the server refuses a statement.
struct Refusal {
    state: String,
    class: ErrorClass,
    text: String,
}

/// The outer error is trouble with the database, the inner one its opinion.
async fn attempt(store: &PgStore, txn: &mut PgTxn, how: &str, sql: &str) -> StoreResult<Result<(), Refusal>> {
    let doing = "checking a handler's statements";
    let row = store
        .query(AssertSqlSafe(format!("SELECT pg_temp.{how}($1)")))
        .bind(sql)
        .fetch_one(&mut **txn)
        .await
        .context(doing)?;
    let [state, message, detail, hint]: [String; 4] = row.try_get(0).context(doing)?;
    if state == WORKED {
        return Ok(Ok(()));
    }
    let text = with_details(&message, [&*detail, &*hint], &state);
    match class_of_state(&state) {
        class @ (ErrorClass::Failed | ErrorClass::Environment) => Ok(Err(Refusal { state, class, text })),
        class => Err(StoreError::new(class, "checking a handler's statements", text)),
    }
}

fn bad_statement(at: usize, statement: &Rendered<'_>, refusal: Refusal) -> BadStatement {
    let sql = statement.step.sql.source().to_owned();
    BadStatement { number: at + 1, sql, reason: refusal.text }
}
