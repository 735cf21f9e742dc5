//! What a handler in SQL is made of.

use crate::{BadStatement, RowRule, Sql, SqlHandlerError, Statement, StatementError};

/// A handler in SQL, its statements read but not yet seen by a database.
///
/// ```
/// use oncebox_sql::{Handler, Statement};
///
/// Handler::each(["INSERT INTO ledger (message_id, sku) VALUES (:id, :key)"])?;
/// Handler::each([Statement::new("UPDATE stock SET on_hand = on_hand - 1 WHERE sku = :key").rows(1)])?;
/// Handler::batch(["INSERT INTO ledger (message_id, sku) SELECT id, key FROM messages"])?;
///
/// let error = Handler::each(["UPDATE stock SET on_hand = :quantity"]).unwrap_err();
/// assert!(error.to_string().starts_with("statement 1: there is no parameter `:quantity`"));
/// # Ok::<(), oncebox_sql::SqlHandlerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handler {
    /// `each`: statements that run for every message, in order.
    Each(Vec<Step>),
    /// `batch`: set-based statements that run once per batch, over the relation `messages`.
    Batch(Vec<Step>),
}

/// One statement of a handler, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The statement.
    pub sql: Sql,
    /// The rows it has to touch; another number rejects the message. Any number when absent. Only in `each`: in a batch
    /// nobody could tell which message to reject.
    pub rows: Option<RowRule>,
}

/// What `:payload` is in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PayloadKind {
    /// JSON, with the operators of the database.
    #[default]
    Json,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
}

impl Handler {
    /// Statements that run for every message, in order. Their parameters are those of [`Param`](crate::Param).
    ///
    /// # Errors
    /// Every statement that is wrong, with its number and the reason.
    pub fn each(statements: impl IntoIterator<Item = impl Into<Statement>>) -> Result<Self, SqlHandlerError> {
        read(statements, |Statement { sql, rows }| Ok(Step { sql: Sql::parse(sql)?, rows: *rows }))
            .map(Self::Each)
    }

    /// Set-based statements that run once per batch, over the relation `messages`. Its columns have the names of the
    /// parameters.
    ///
    /// # Errors
    /// Every statement that is wrong, with its number and the reason.
    pub fn batch(
        statements: impl IntoIterator<Item = impl Into<Statement>>,
    ) -> Result<Self, SqlHandlerError> {
        read(statements, |Statement { sql, rows }| match rows {
            None => Ok(Step { sql: Sql::parse_batch(sql)?, rows: None }),
            Some(_) => Err(StatementError::RowsInBatch),
        })
        .map(Self::Batch)
    }

    /// Its statements in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        match self {
            Self::Each(steps) | Self::Batch(steps) => steps,
        }
    }
}

fn read(
    statements: impl IntoIterator<Item = impl Into<Statement>>,
    step: impl Fn(&Statement) -> Result<Step, StatementError>,
) -> Result<Vec<Step>, SqlHandlerError> {
    let (mut steps, mut bad) = (Vec::new(), Vec::new());
    for (statement, number) in statements.into_iter().zip(1..) {
        let statement = statement.into();
        match step(&statement) {
            Ok(step) => steps.push(step),
            Err(error) => bad.push(BadStatement { number, sql: statement.sql, reason: error.to_string() }),
        }
    }
    match (steps.is_empty(), bad.is_empty()) {
        (_, false) => Err(SqlHandlerError::Statements(bad)),
        (true, true) => Err(SqlHandlerError::Empty),
        (false, true) => Ok(steps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_statement_is_named() {
        let error = Handler::each(["SELECT :idd", "SELECT :id", "COMMIT"]).unwrap_err();
        let SqlHandlerError::Statements(bad) = &error else { panic!("{error:?}") };
        assert_eq!(bad.iter().map(|bad| bad.number).collect::<Vec<_>>(), [1, 3]);
        assert!(bad[0].reason.contains("did you mean `:id`?"), "{error}");
    }

    #[test]
    fn a_rule_about_rows_is_for_single_messages() {
        let statement = || Statement::new("DELETE FROM t USING messages WHERE t.id = messages.id").rows(1);
        assert_eq!(Handler::each([statement()]).unwrap().steps()[0].rows, Some(RowRule::exactly(1)));
        let error = Handler::batch([statement()]).unwrap_err();
        assert!(error.to_string().contains("move the statement to `each`"), "{error}");
    }

    #[test]
    fn a_handler_without_statements_is_a_mistake() {
        assert!(matches!(Handler::each([""; 0]), Err(SqlHandlerError::Empty)));
    }
}
