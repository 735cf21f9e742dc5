//! Asks the server about each statement before the first message comes.
//!
//! A statement that is prepared is looked at but not run: its tables, its columns, the rights of this user.

use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use oncebox_sql::lexer::Kind;
use oncebox_sql::{BadStatement, Param, PayloadKind, SqlHandlerError, Step};
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, Row, SqlSafeStr, Statement};

use crate::classify::{Context, class_of_driver, number_of};
use crate::wording::of_driver;

/// This statement cannot be prepared, only run.
const NOT_PREPARED: u16 = 1295;

/// The statement of a step as it will run, with [`typed`] placeholders; or why it cannot.
pub(super) type Rendered = Result<String, String>;

/// A placeholder that has the type of the parameter. Without one the server guesses, and refuses `JSON_VALUE(?, …)`.
pub(super) fn typed(param: Param, payload: PayloadKind) -> String {
    match (param, payload) {
        (Param::Payload, PayloadKind::Bytes) => "CAST(? AS BINARY)",
        (Param::Partition | Param::Offset, _) => "CAST(? AS SIGNED)",
        (Param::Timestamp, _) => "CAST(? AS DATETIME(3))",
        _ => "(CAST(? AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin)",
    }
    .to_owned()
}

/// Checks all statements, and finds out which of them answer with rows.
pub(super) async fn probe(
    conn: &mut MySqlConnection,
    steps: &[Step],
    rendered: &[Rendered],
) -> Result<Vec<bool>, SqlHandlerError> {
    let (mut returns_rows, mut bad) = (Vec::new(), Vec::new());
    for (at, (step, rendered)) in steps.iter().zip(rendered).enumerate() {
        let looked = match rendered {
            Ok(sql) => match look_at(conn, sql).await? {
                Ok(_) if !calls_what_is_there(conn, step).await? => {
                    let reason = "there is no such procedure, or this user may not call it (1305)".to_owned();
                    Err((ErrorClass::Environment, reason))
                }
                looked => looked,
            },
            Err(reason) => Err((ErrorClass::Failed, reason.clone())),
        };
        let looked = match looked {
            Ok(_) if step.rows.is_some() && writes_and_answers(step) => {
                let reason =
                    "nobody counts the rows of a statement with RETURNING: leave out RETURNING, or `rows`";
                Err((ErrorClass::Failed, reason.to_owned()))
            }
            looked => looked,
        };
        match looked {
            Ok(rows) => returns_rows.push(rows),
            Err((class, reason)) => {
                let sql = step.sql.source().to_owned();
                bad.push((
                    class,
                    BadStatement { number: at + 1, sql, reason: with_advice(step, class, reason) },
                ));
            }
        }
    }
    if bad.is_empty() { Ok(returns_rows) } else { Err(refused(bad)) }
}

/// MariaDB's RETURNING. After it FOUND_ROWS() tells the rows of an earlier statement, and ROW_COUNT() tells nothing.
fn writes_and_answers(step: &Step) -> bool {
    ["INSERT", "REPLACE", "DELETE"].contains(&step.sql.first_keyword())
        && step.sql.tokens().iter().any(|token| token.is_word("returning"))
}

/// The outer error is trouble with the database, the inner one its opinion.
async fn look_at(conn: &mut MySqlConnection, sql: &str) -> StoreResult<Result<bool, (ErrorClass, String)>> {
    match conn.prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await {
        Ok(statement) => Ok(Ok(!statement.columns().is_empty())),
        Err(error) if number_of(&error) == Some(NOT_PREPARED) => Ok(Ok(false)),
        Err(error) => match class_of_driver(&error) {
            class @ (ErrorClass::Failed | ErrorClass::Environment) => {
                Ok(Err((class, of_driver(&error).whole)))
            }
            class => Err(StoreError::new(class, "checking a handler's statements", error)),
        },
    }
}

/// MariaDB looks for a procedure only when it is called. One with a schema in front may be part of a package, so only bare names
/// are looked up.
async fn calls_what_is_there(conn: &mut MySqlConnection, step: &Step) -> StoreResult<bool> {
    let tokens = step.sql.tokens();
    let mut words = tokens.iter().filter(|token| token.kind != Kind::Blank);
    let (call, name, next) = (words.next(), words.next(), words.next());
    let is_call = call.is_some_and(|call| call.is_word("call")) && next.is_none_or(|next| next.text != ".");
    let Some(name) = name.filter(|_| is_call) else { return Ok(true) };
    let doing = "checking a handler's statements";
    let found: i64 = sqlx::query(
        "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name = ?",
    )
    .bind(name.text.trim_matches('`'))
    .fetch_one(conn)
    .await
    .and_then(|row| row.try_get(0))
    .context(doing)?;
    Ok(found > 0)
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

/// What to grant, as far as the first keyword says it.
fn with_advice(step: &Step, class: ErrorClass, reason: String) -> String {
    let is_denied = class == ErrorClass::Environment
        && ["(1142)", "(1143)", "(1370)"].iter().any(|n| reason.ends_with(n));
    if !is_denied {
        return reason;
    }
    let rights = match step.sql.first_keyword() {
        "INSERT" => "INSERT, SELECT",
        "UPDATE" => "UPDATE, SELECT",
        "DELETE" => "DELETE, SELECT",
        "REPLACE" => "INSERT, DELETE, SELECT",
        "SELECT" => "SELECT",
        "CALL" => "EXECUTE",
        _ => "SELECT, INSERT, UPDATE, DELETE",
    };
    format!("{reason}; GRANT {rights} ON … TO …")
}
