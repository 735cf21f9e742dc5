//! The statements of a handler: checked once, then run together.
//!
//! Each call of the driver travels to SQLite's thread and back, which takes longer than a small statement. So several
//! statements go as one text; SQLite still runs them one after another, and reports each.

use std::sync::Arc;

use futures_util::StreamExt;
use oncebox_core::error::{BoxError, reject};
use oncebox_sql::RowRule;
use oncebox_sql::SqlHandlerError;
use oncebox_sql::Step;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Either, Executor, SqlSafeStr, SqliteConnection, Statement};

use super::error::bad_statement;
use crate::classify::class_of_statement;
use crate::wording::said;

/// What there is to know about each statement.
#[derive(Debug)]
pub(super) struct Statements(Vec<Known>);

#[derive(Debug)]
struct Known {
    sql: String,
    rule: Option<RowRule>,
    /// A statement that returns rows is judged by these; SQLite's count of changes would be that of an earlier one.
    returns_rows: bool,
}

/// The run did not get to its end.
pub(super) struct Stopped {
    /// How often the statements had been run from first to last.
    pub(super) rounds: usize,
    pub(super) error: BoxError,
}

impl Statements {
    /// Lets SQLite look at each statement.
    pub(super) async fn prepare(
        conn: &mut SqliteConnection,
        steps: &[Step],
        render: impl Fn(&Step) -> String,
    ) -> Result<Self, SqlHandlerError> {
        let (mut known, mut bad) = (Vec::new(), Vec::new());
        for (at, step) in steps.iter().enumerate() {
            let sql = render(step);
            match conn.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await {
                Ok(statement) => {
                    let returns_rows = !statement.columns().is_empty();
                    known.push(Known { sql, rule: step.rows, returns_rows });
                }
                Err(error) => bad.push(bad_statement(at, step, &error)),
            }
        }
        if bad.is_empty() { Ok(Self(known)) } else { Err(SqlHandlerError::Statements(bad)) }
    }

    /// Runs a text that holds the statements once or several times over.
    pub(super) async fn run(
        &self,
        conn: &mut SqliteConnection,
        text: &Arc<str>,
        arguments: SqliteArguments,
    ) -> Result<(), Stopped> {
        let mut results = conn.fetch_many(sqlx::query_with(AssertSqlSafe(text.clone()), arguments));
        let (mut done, mut rows) = (0, 0);
        while let Some(result) = results.next().await {
            let at = done % self.0.len();
            let judged = match result {
                Ok(Either::Right(_)) => {
                    rows += 1;
                    continue;
                }
                Ok(Either::Left(result)) => self.0[at].judge(at + 1, rows, result.rows_affected()),
                Err(cause) => {
                    drop(results);
                    let error = self.0[at].blame(conn, at + 1, cause).await;
                    return Err(Stopped { rounds: done / self.0.len(), error });
                }
            };
            judged.map_err(|error| Stopped { rounds: done / self.0.len(), error })?;
            done += 1;
            rows = 0;
        }
        Ok(())
    }
}

impl Known {
    /// Finds out whether the statement or the message is to blame.
    async fn blame(&self, conn: &mut SqliteConnection, number: usize, cause: sqlx::Error) -> BoxError {
        let class = class_of_statement(conn, &self.sql, &cause).await;
        said(class, format!("statement {number} failed"), cause).into()
    }

    fn judge(&self, number: usize, returned: u64, changed: u64) -> Result<(), BoxError> {
        let touched = if self.returns_rows { returned } else { changed };
        match self.rule {
            Some(rule) if !rule.allows(touched) => {
                Err(reject(format!("statement {number} touched {touched} rows, expected {rule}")))
            }
            _ => Ok(()),
        }
    }
}

/// One text of several statements. Each ends on a line of its own, because it may end in a comment.
pub(super) fn together(statements: impl Iterator<Item = String>) -> Arc<str> {
    statements.map(|sql| sql + "\n;\n").collect::<String>().into()
}
