//! `batch`: set-based statements over the relation `messages`, all of them in one message to the server.

use oncebox_sql::Step;
use sqlx::MySqlConnection;

use super::render::render;
use super::text::{json_source, run};
use super::values::{Values, Wanted, to_json};
use super::{events, failure, messages, table};
use crate::quote::text;

/// Where the messages are while the statements run.
const JSON: &str = "@oncebox_messages";

/// A handler that runs once per batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) wanted: Wanted,
    statements: String,
    events: bool,
}

/// The statement over the messages of the session. `None` if it does not read them.
pub(super) fn over_messages(step: &Step, wanted: &Wanted) -> Option<String> {
    // It has no parameters, so nothing is asked for one.
    let sql = render(&step.sql, |param| param.to_string());
    messages::with_relation(&sql, &table::relation(JSON, wanted))
}

impl Batch {
    pub(super) fn new(statements: &[String], wanted: &Wanted, events: bool) -> Self {
        let mut text = String::new();
        for (sql, number) in statements.iter().zip(1..) {
            // The statement may end in a comment, so what follows stands on a line of its own.
            text.push_str(&format!("{};\n{sql}\n;\n", failure::at_statement(number)));
        }
        text.push_str(&failure::forget(events));
        Self { wanted: wanted.clone(), statements: text, events }
    }

    pub(super) async fn apply(&self, conn: &mut MySqlConnection, values: &[Values<'_>]) -> sqlx::Result<()> {
        let json = json_source(conn, &to_json(values)).await?;
        let mut sql = String::with_capacity(json.len() + self.statements.len() + 256);
        sql.push_str(&format!("SET {JSON} = {json};\n"));
        if self.events {
            sql.push_str(&format!("{};\n", events::tell_consumer(&text(&events::consumer()))));
        }
        sql.push_str(&self.statements);
        run(conn, sql).await
    }
}
