//! `each` on MySQL for a user who may not make procedures: all statements of all messages as one text, with literals. Slower than
//! a procedure, since the server reads every statement anew.

use oncebox_sql::{RowRule, Step};
use sqlx::MySqlConnection;

use super::body::{Parts, touched};
use super::render::render;
use super::text::run;
use super::values::{Value, Values, Wanted, push_literal};
use super::{events, failure};
use crate::quote::text;

/// A text that is longer goes to the server, and the next one begins.
const TEXT_BYTES: usize = 1024 * 1024;

/// A handler that runs for every message, statement by statement.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) wanted: Wanted,
    steps: Vec<(Step, bool)>,
    events: bool,
}

impl Texts {
    pub(super) fn new(parts: &Parts<'_>) -> Self {
        let steps = parts.steps.iter().cloned().zip(parts.returns_rows.iter().copied()).collect();
        Self { wanted: parts.wanted.clone(), steps, events: parts.events }
    }

    pub(super) async fn apply(&self, conn: &mut MySqlConnection, values: &[Values<'_>]) -> sqlx::Result<()> {
        let consumer = if self.events { text(&events::consumer()) } else { String::new() };
        let mut sql = String::new();
        for (message, values) in values.iter().enumerate() {
            self.push_message(&mut sql, message, values, &consumer);
            if sql.len() > TEXT_BYTES {
                sql.push_str("DO 0");
                run(conn, std::mem::take(&mut sql)).await?;
            }
        }
        sql.push_str(&failure::forget(self.events));
        run(conn, sql).await
    }

    fn push_message(&self, sql: &mut String, message: usize, values: &[Value<'_>], consumer: &str) {
        let literal = |param| {
            let mut literal = String::new();
            let value = self.wanted.place(param).and_then(|place| values.get(place));
            push_literal(&mut literal, value.unwrap_or(&Value::Null));
            literal
        };
        sql.push_str(&format!("{};\n", failure::at(&message.to_string(), 1)));
        if self.events {
            let [id, headers, tenant] = events::CAUSE.map(literal);
            sql.push_str(&format!("{};\n", events::tell_cause(consumer, &id, &tenant, &headers)));
        }
        for (at, (step, returns_rows)) in self.steps.iter().enumerate() {
            if at > 0 {
                sql.push_str(&format!("{};\n", failure::at_statement(at + 1)));
            }
            sql.push_str(&format!("{}\n;\n", render(&step.sql, literal)));
            if let Some(rule) = step.rows {
                sql.push_str(&row_rule(rule, *returns_rows));
            }
        }
    }
}

/// There is no IF outside of a routine. A subquery with two rows where one is allowed is an error, and the number of rows that is
/// still there says which.
fn row_rule(rule: RowRule, returns_rows: bool) -> String {
    let upper = rule.max().map_or(String::new(), |max| format!(" AND @oncebox_rows <= {max}"));
    format!(
        "SET @oncebox_rows = {};\nSET @oncebox_rows = \
         IF(@oncebox_rows >= {}{upper}, NULL, (SELECT 1 UNION ALL SELECT 2));\n",
        touched(returns_rows),
        rule.min(),
    )
}
