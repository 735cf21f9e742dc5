//! What every connection of the pool must have: the temporary functions of SQL handlers.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// A connection that was idle for longer is asked whether it still lives before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// The definitions that new connections run, and since when.
#[derive(Debug, Default)]
pub(crate) struct Sessions(RwLock<Definitions>);

#[derive(Debug, Default)]
struct Definitions {
    sql: Vec<Arc<str>>,
    changed: Option<Instant>,
}

impl Sessions {
    /// Adds a definition. Connections that are older are replaced when the pool hands them out next.
    #[cfg(feature = "sql")]
    pub(crate) fn add(&self, sql: Arc<str>) {
        let mut definitions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !definitions.sql.contains(&sql) {
            definitions.sql.push(sql);
            definitions.changed = Some(Instant::now());
        }
    }

    fn predates_a_definition(&self, age: Duration) -> bool {
        let definitions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        definitions.changed.is_some_and(|changed| age >= changed.elapsed())
    }

    async fn define_all(&self, conn: &mut PgConnection) {
        let definitions = self.0.read().unwrap_or_else(PoisonError::into_inner).sql.clone();
        for sql in definitions {
            // A handler that misses its function on some connection notices, and defines it itself.
            if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await {
                tracing::warn!(%error, "could not define a handler's function on a new connection");
            }
        }
    }
}

/// Pool options that keep connections as `sessions` wants them.
pub(crate) fn pool_options(sessions: &Arc<Sessions>) -> PgPoolOptions {
    let for_idle = Arc::clone(sessions);
    let for_new = Arc::clone(sessions);
    PgPoolOptions::new()
        // The pool would otherwise ask the server before every single batch.
        .test_before_acquire(false)
        .before_acquire(move |conn, meta| {
            let outdated = for_idle.predates_a_definition(meta.age);
            Box::pin(async move {
                if !outdated && meta.idle_for > TRUSTED_IDLE {
                    conn.ping().await?;
                }
                Ok(!outdated)
            })
        })
        .after_connect(move |conn, _| {
            let sessions = Arc::clone(&for_new);
            Box::pin(async move {
                sessions.define_all(conn).await;
                Ok(())
            })
        })
}
