//! `batch`: set-based statements over the relation `messages`.
//!
//! The messages lie in a temporary table with a name of ours, and each statement sees it as `messages` through a common
//! table expression. A temporary table called `messages` would hide a table of that name from every other handler.

use std::sync::Arc;

use oncebox_core::inbox::Failure;
use oncebox_core::message::Message;
use oncebox_core::store::StoreResult;
use oncebox_sql::Param;
use oncebox_sql::SqlHandlerError;
use oncebox_sql::{PayloadKind, Step};
use serde_json::{Value as Json, json};
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, SqliteConnection};

use super::statements::{Statements, together};
use super::values::{Value, Values, Wanted};
use crate::classify::Context;

const CREATE: &str = r#"CREATE TEMP TABLE IF NOT EXISTS oncebox_messages (
    place INTEGER PRIMARY KEY, id TEXT, key TEXT, payload, headers TEXT, topic TEXT, partition INTEGER,
    "offset" INTEGER, "timestamp" TEXT, tenant TEXT)"#;

const CLEAR: &str = "DELETE FROM temp.oncebox_messages";

const MESSAGES: &str = r#"messages AS (SELECT id, key, payload, headers, topic, partition, "offset", "timestamp", tenant
    FROM temp.oncebox_messages)"#;

const FILLING: &str = "filling the relation of messages";

/// A handler that runs once per batch.
#[derive(Debug)]
pub(super) struct Batch {
    wanted: Wanted,
    statements: Statements,
    fill: Arc<str>,
    text: Arc<str>,
}

impl Batch {
    pub(super) async fn prepare(
        conn: &mut SqliteConnection,
        steps: &[Step],
        payload: PayloadKind,
    ) -> Result<Self, SqlHandlerError> {
        sqlx::query(CREATE).execute(&mut *conn).await.context(FILLING)?;
        let statements = Statements::prepare(conn, steps, render).await?;
        let wanted = Wanted { used: used(steps), payload };
        let fill = fill_text(&wanted).into();
        Ok(Self { wanted, statements, fill, text: together(steps.iter().map(render)) })
    }

    pub(super) async fn apply(&self, conn: &mut SqliteConnection, fresh: &[Message]) -> Result<(), Failure> {
        let values = self.wanted.values(fresh)?;
        self.fill(conn, &values).await.map_err(Failure::of_batch)?;
        let run = self.statements.run(conn, &self.text, SqliteArguments::default()).await;
        let only = (fresh.len() == 1).then_some(0);
        run.map_err(|stopped| Failure { at: only, error: stopped.error })?;
        // A rollback empties the table as well, so only success has to.
        sqlx::query(CLEAR).execute(conn).await.context(FILLING).map_err(Failure::of_batch)?;
        Ok(())
    }

    async fn fill(&self, conn: &mut SqliteConnection, messages: &[Values<'_>]) -> StoreResult<()> {
        // One byte in front: substr() of an empty blob is NULL.
        let mut bytes = vec![0];
        let mut row = |values: &Values<'_>| {
            let used = self.wanted.used.iter().map(|param| &values[param.index() - 1]);
            Json::from_iter(used.map(|value| to_json(value, &mut bytes)))
        };
        let rows = Json::from_iter(messages.iter().map(&mut row)).to_string();
        sqlx::query(CREATE).execute(&mut *conn).await.context(FILLING)?;
        let fill = sqlx::query(AssertSqlSafe(self.fill.clone()));
        fill.bind(rows).bind(bytes).execute(conn).await.context(FILLING)?;
        Ok(())
    }
}

/// Fills the columns that are used, from JSON. Bytes have no place in JSON: they travel as one blob, and the JSON says
/// where each payload lies in it.
fn fill_text(wanted: &Wanted) -> String {
    let (mut columns, mut values) = (String::new(), String::new());
    for (at, param) in wanted.used.iter().enumerate() {
        columns += &format!(", \"{}\"", param.name());
        values += &match (param, wanted.payload) {
            (Param::Payload, PayloadKind::Bytes) => {
                format!(", substr(?2, m.value->>'$[{at}][0]', m.value->>'$[{at}][1]')")
            }
            _ => format!(", m.value->>{at}"),
        };
    }
    format!("INSERT INTO temp.oncebox_messages (place{columns}) SELECT m.key{values} FROM json_each(?1) m")
}

fn render(step: &Step) -> String {
    step.sql.with(MESSAGES)
}

/// A batch statement has no parameters that would tell, so a mention will do, and `*` may mean anything.
fn used(steps: &[Step]) -> std::collections::BTreeSet<Param> {
    let sources: Vec<String> = steps.iter().map(|step| step.sql.source().to_lowercase()).collect();
    let mentioned =
        |param: &Param| sources.iter().any(|source| source.contains('*') || source.contains(param.name()));
    Param::ALL.into_iter().filter(mentioned).collect()
}

fn to_json(value: &Value<'_>, bytes: &mut Vec<u8>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(integer) => Json::from(*integer),
        Value::Text(text) => Json::from(text.as_ref()),
        Value::Blob(blob) => {
            // SQLite counts from 1.
            let start = bytes.len() + 1;
            bytes.extend_from_slice(blob);
            json!([start, blob.len()])
        }
    }
}
