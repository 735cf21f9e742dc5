//! A statement as its author writes it.

use crate::RowRule;

/// A statement of a handler as it is written: its text, and the rows it has to touch.
///
/// ```
/// use oncebox_sql::Statement;
///
/// Statement::new("UPDATE stock SET on_hand = on_hand - 1 WHERE sku = :key").rows(1);
/// Statement::new("UPDATE bin SET counted = true WHERE sku = :key").rows(1..);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub(crate) sql: String,
    pub(crate) rows: Option<RowRule>,
}

impl Statement {
    /// A statement that may touch any number of rows.
    pub fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), rows: None }
    }

    /// How many rows it has to touch: `1`, `1..`, `1..=3` or `..=5`. Another number rejects the message.
    #[must_use]
    pub fn rows(mut self, rows: impl Into<RowRule>) -> Self {
        self.rows = Some(rows.into());
        self
    }
}

impl From<&str> for Statement {
    fn from(sql: &str) -> Self {
        Self::new(sql)
    }
}

impl From<String> for Statement {
    fn from(sql: String) -> Self {
        Self::new(sql)
    }
}
