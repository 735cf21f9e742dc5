//! `batch`: set-based statements over the relation `messages`.
//!
//! The messages lie in a temporary table with a name of ours, and each statement sees it as `messages` through a common
//! table expression. A temporary table called `messages` would hide a table of that name from every other handler.

use std::sync::Arc;

use oncebox_core::config::{PayloadKind, Step};
use oncebox_core::statement::Param;
use oncebox_core::{Failure, Message, StoreResult};
use serde_json::{Value as Json, json};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteArguments;

use super::error::SqlHandlerError;
use super::statements::{Statements, together};
use super::values::{Value, Values, Wanted};
use super::with;
use crate::classify::Context;

const CREATE: &str = r#"CREATE TEMP TABLE IF NOT EXISTS oncebox_messages (
    place INTEGER PRIMARY KEY, id TEXT, key TEXT, payload, headers TEXT, topic TEXT, partition INTEGER,
    "offset" INTEGER, "timestamp" TEXT, tenant TEXT)"#;

// Bytes have no place in JSON: they travel as one blob, and the JSON says where each payload lies in it.
const FILL: &str = "INSERT INTO temp.oncebox_messages
    SELECT m.key, m.value->>0, m.value->>1,
        CASE json_type(m.value, '$[2]')
            WHEN 'array' THEN substr(?2, m.value->>'$[2][0]', m.value->>'$[2][1]')
            ELSE m.value->>2 END,
        m.value->>3, m.value->>4, m.value->>5, m.value->>6, m.value->>7, m.value->>8
    FROM json_each(?1) m";

const CLEAR: &str = "DELETE FROM temp.oncebox_messages";

const MESSAGES: &str = r#"messages AS (SELECT id, key, payload, headers, topic, partition, "offset", "timestamp", tenant
    FROM temp.oncebox_messages)"#;

/// A handler that runs once per batch.
#[derive(Debug)]
pub(super) struct Batch {
    wanted: Wanted,
    statements: Statements,
    text: Arc<str>,
}

impl Batch {
    pub(super) async fn prepare(
        conn: &mut SqliteConnection,
        steps: &[Step],
        payload: PayloadKind,
    ) -> Result<Self, SqlHandlerError> {
        sqlx::query(CREATE).execute(&mut *conn).await.context("creating the relation of messages")?;
        let statements = Statements::prepare(conn, steps, render).await?;
        let text = together(steps.iter().map(render));
        Ok(Self { wanted: Wanted { used: used(steps), payload }, statements, text })
    }

    pub(super) async fn apply(&self, conn: &mut SqliteConnection, fresh: &[Message]) -> Result<(), Failure> {
        let values = self.wanted.values(fresh)?;
        fill(conn, &values).await.map_err(Failure::of_batch)?;
        let run = self.statements.run(conn, &self.text, SqliteArguments::default()).await;
        let only = (fresh.len() == 1).then_some(0);
        run.map_err(|stopped| Failure { at: only, error: stopped.error })?;
        sqlx::query(CLEAR).execute(conn).await.context("clearing the messages").map_err(Failure::of_batch)?;
        Ok(())
    }
}

fn render(step: &Step) -> String {
    with::prepend(MESSAGES, step.statement.source())
}

/// A batch statement has no parameters that would tell, so a mention will do, and `*` may mean anything.
fn used(steps: &[Step]) -> std::collections::BTreeSet<Param> {
    let sources: Vec<String> = steps.iter().map(|step| step.statement.source().to_lowercase()).collect();
    let mentioned =
        |param: &Param| sources.iter().any(|source| source.contains('*') || source.contains(param.name()));
    Param::ALL.into_iter().filter(mentioned).collect()
}

/// A rollback empties the table as well, so only success has to.
async fn fill(conn: &mut SqliteConnection, messages: &[Values<'_>]) -> StoreResult<()> {
    // One byte in front: substr() of an empty blob is NULL.
    let mut bytes = vec![0];
    let rows =
        messages.iter().map(|values| Json::from_iter(values.iter().map(|value| to_json(value, &mut bytes))));
    let rows = Json::from_iter(rows).to_string();
    let doing = "filling the relation of messages";
    sqlx::query(CREATE).execute(&mut *conn).await.context(doing)?;
    sqlx::query(FILL).bind(rows).bind(bytes).execute(conn).await.context(doing)?;
    Ok(())
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
