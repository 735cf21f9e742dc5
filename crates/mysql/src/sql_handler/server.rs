//! Which server it is, and how it reads.

use oncebox_core::store::StoreResult;
use sqlx::{MySqlConnection, Row};

use crate::classify::Context;

/// What a handler must know of the server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) is_mariadb: bool,
    /// What a routine takes from the session that makes it.
    pub(super) modes: String,
}

impl Server {
    pub(super) async fn ask(conn: &mut MySqlConnection) -> StoreResult<Self> {
        let doing = "asking which server it is";
        let row = sqlx::raw_sql(
            "SELECT CAST(/*M! 1 + */ 0 AS SIGNED), \
             CONCAT_WS(' ', @@sql_mode, @@character_set_client, @@collation_connection, @@collation_database)",
        )
        .fetch_one(conn)
        .await
        .context(doing)?;
        let is_mariadb = row.try_get::<i64, _>(0).context(doing)? == 1;
        Ok(Self { is_mariadb, modes: row.try_get(1).context(doing)? })
    }
}
