//! What every connection of a pool is like.

use std::time::Duration;

use sqlx::mysql::{MySqlPoolOptions, MySqlTransactionManager};
use sqlx::{Connection, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

/// A connection that was idle for longer is asked whether it still lives before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// sqlx counts one open transaction from here on, and for good. It would otherwise have to be told about each one in a
/// round trip of its own; and a handler that calls `begin` on its connection must get a savepoint, because BEGIN would commit
/// what the batch has done so far. The transaction itself is empty, and the next START TRANSACTION ends it.
///
/// The isolation level is set before that one: MySQL keeps the level of an open transaction for the one whose START TRANSACTION
/// ends it, and the first batch of a connection would run with the server's default.
///
/// What the session begins with is written down: each transaction begins with it.
const COUNT_ONE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION autocommit = 0, @oncebox_sql_mode = @@SESSION.sql_mode, \
     @oncebox_time_zone = @@SESSION.time_zone; START TRANSACTION";

/// The depth that sqlx counts between a handler's own transactions.
pub(crate) const OUR_DEPTH: usize = 1;

/// Options of a pool whose connections are ours alone.
pub(crate) fn pool_options(idle_timeout: Duration) -> MySqlPoolOptions {
    MySqlPoolOptions::new()
        .idle_timeout(idle_timeout)
        // The pool would otherwise ask the server before every single batch.
        .test_before_acquire(false)
        .before_acquire(|conn, meta| {
            Box::pin(async move {
                if meta.idle_for > TRUSTED_IDLE {
                    conn.ping().await?;
                }
                Ok(true)
            })
        })
        .after_connect(|conn, _| {
            Box::pin(MySqlTransactionManager::begin(conn, Some(COUNT_ONE.into_sql_str())))
        })
}
