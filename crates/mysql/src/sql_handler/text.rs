//! Statements as text, several in one message.

use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::quote::text;

/// The longest JSON that travels inside of a statement. As digits it is twice as long, and every server takes a megabyte.
const INLINE_BYTES: usize = 400 * 1024;

/// Runs statements and reads whatever they answer.
pub(super) async fn run(conn: &mut MySqlConnection, sql: String) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.map(drop)
}

/// An expression for the JSON. One that is long goes ahead, in a round trip of its own and in half as many bytes.
pub(super) async fn json_source(conn: &mut MySqlConnection, json: &str) -> sqlx::Result<String> {
    if json.len() <= INLINE_BYTES {
        return Ok(text(json));
    }
    sqlx::query("SET @oncebox_messages = ?").bind(json).execute(conn).await?;
    Ok("@oncebox_messages".to_owned())
}
