//! The life of a handler's procedure in the database.
//!
//! Its comment says on which day a handler was last prepared with it. One that nobody has prepared for a month is dropped by the
//! next handler that is; a process that has run for longer makes its own again.

use oncebox_core::store::StoreResult;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use crate::classify::{Context, class_of_own, number_of};
use crate::quote::identifier;
use crate::store::MysqlStore;
use crate::wording::said;

/// What the names of such procedures begin with.
pub(super) const PREFIX: &str = "oncebox_each_";

/// The comment is this and a day.
const COMMENT: &str = "oncebox handler, last prepared on ";
const KEPT_DAYS: u32 = 30;

const DOING: &str = "making a handler's procedure";

/// Whether a procedure can be called now.
pub(super) enum Made {
    Ready,
    Denied,
}

/// Makes a procedure unless it is there. `definition` has `{comment}` in the place of a comment.
pub(super) async fn make(store: &MysqlStore, name: &str, definition: &str) -> StoreResult<Made> {
    // Dropped at the end, and so closed: nobody inherits the timeout.
    let mut txn = store.begin_aside().await?;
    let today = begin(&mut txn).await?;
    let comment = format!("{COMMENT}{today}");
    match comment_of(&mut txn, name).await? {
        Some(found) if found == comment => {}
        // To touch it waits for those who use it, so that is done once a day.
        Some(_) => note_use(&mut txn, name, &comment).await,
        None => {
            let definition = definition.replacen("{comment}", &format!("COMMENT '{comment}'"), 1);
            let create = AssertSqlSafe(format!("CREATE PROCEDURE {name}{definition}"));
            match sqlx::raw_sql(create).execute(&mut *txn).await {
                Ok(_) => {}
                // Somebody was quicker; or an operator has made it, and this user may not look at it.
                Err(error) if number_of(&error) == Some(EXISTS) || is_denied(&error) => {}
                Err(error) => return Err(said(class_of_own(&error), DOING, error)),
            }
        }
    }
    drop_old(&mut txn, name).await;
    let call = AssertSqlSafe(format!("CALL {name}('[]', 0, NULL)"));
    match sqlx::raw_sql(call).execute(&mut *txn).await {
        Ok(_) => Ok(Made::Ready),
        Err(error) if number_of(&error) == Some(MISSING) || is_denied(&error) => Ok(Made::Denied),
        Err(error) => Err(said(class_of_own(&error), DOING, error)),
    }
}

/// There is a routine of that name.
const EXISTS: u16 = 1304;
/// There is none.
pub(super) const MISSING: u16 = 1305;

fn is_denied(error: &sqlx::Error) -> bool {
    matches!(number_of(error), Some(1044 | 1142 | 1227 | 1370 | 1419))
}

/// Sets how long to wait for transactions that use a procedure, and says which day it is.
async fn begin(conn: &mut MySqlConnection) -> StoreResult<String> {
    sqlx::raw_sql("SET SESSION lock_wait_timeout = 5; SELECT CAST(UTC_DATE() AS CHAR)")
        .fetch_one(conn)
        .await
        .and_then(|row| row.try_get(0))
        .context(DOING)
}

/// `None` also if this user may not look at it.
async fn comment_of(conn: &mut MySqlConnection, name: &str) -> StoreResult<Option<String>> {
    sqlx::raw_sql(AssertSqlSafe(format!(
        "SELECT CAST(routine_comment AS CHAR) FROM information_schema.routines \
         WHERE routine_schema = DATABASE() AND routine_name = '{name}'"
    )))
    .fetch_optional(conn)
    .await
    .and_then(|row| row.map(|row| row.try_get(0)).transpose())
    .context(DOING)
}

/// Only for the sake of the next cleaning, so nothing depends on it.
async fn note_use(conn: &mut MySqlConnection, name: &str, comment: &str) {
    let alter = AssertSqlSafe(format!("ALTER PROCEDURE {name} COMMENT '{comment}'"));
    if let Err(error) = sqlx::raw_sql(alter).execute(conn).await {
        tracing::debug!(%error, procedure = name, "could not note that a handler's procedure is in use");
    }
}

/// Drops the procedures of handlers that are gone.
async fn drop_old(conn: &mut MySqlConnection, ours: &str) {
    let dropped = async {
        let old = sqlx::raw_sql(AssertSqlSafe(format!(
            "SELECT CAST(routine_name AS CHAR) FROM information_schema.routines WHERE routine_schema = DATABASE() \
             AND LEFT(routine_name, {length}) = '{PREFIX}' AND routine_name <> '{ours}' AND routine_comment LIKE '{COMMENT}%' \
             AND routine_comment < CONCAT('{COMMENT}', CAST(UTC_DATE() - INTERVAL {KEPT_DAYS} DAY AS CHAR)) LIMIT 100",
            length = PREFIX.len(),
        )))
        .fetch_all(&mut *conn)
        .await?;
        for row in old {
            let name: String = row.try_get(0)?;
            let drop = format!("DROP PROCEDURE IF EXISTS {}", identifier(&name));
            sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *conn).await?;
            tracing::info!(
                procedure = name,
                "dropped a handler's procedure that was not used for {KEPT_DAYS} days"
            );
        }
        Ok::<(), sqlx::Error>(())
    };
    if let Err(error) = dropped.await {
        tracing::debug!(%error, "could not drop old procedures of handlers");
    }
}
