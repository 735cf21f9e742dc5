//! Queries whose rows become events.

use oncebox_core::error::BoxError;
use oncebox_core::outbox::{check_topic, events_committed};
use oncebox_core::store::{ErrorClass, StoreError, StoreResult, Sweep};
use sqlx::{AssertSqlSafe, Column, Executor, SqlSafeStr, Statement};

use crate::classify::{Context, class_of_driver};
use crate::quote::identifier;
use crate::store::PgStore;
use crate::time::milliseconds;
use crate::txn::STILL_OPEN;

/// Runs the query and emits its rows.
pub(super) async fn sweep(store: &PgStore, sweep: &Sweep) -> StoreResult<u64> {
    let doing = format!("running sweep {}", sweep.name);
    let mut txn = store.begin_aside().await?;
    let emitted = store
        .query(AssertSqlSafe(emitting(sweep)))
        .bind(&sweep.name)
        .bind(milliseconds(sweep.window))
        .bind(i64::from(sweep.limit))
        .bind(&sweep.topic)
        .execute(&mut *txn)
        .await
        .context_of_user(&doing)?
        .rows_affected();
    txn.commit_after(STILL_OPEN).await.context_of_user(&doing)?;
    if emitted > 0 {
        events_committed();
    }
    Ok(emitted)
}

/// Lets PostgreSQL look at the query, and looks for the columns.
pub(super) async fn check_sweep(store: &PgStore, sweep: &Sweep) -> StoreResult<()> {
    check_topic(&sweep.topic).map_err(|e| wrong(sweep, e))?;
    let mut txn = store.begin_aside().await?;
    let found = columns(&mut txn, sweep).await.map_err(|e| refused(sweep, e))?;
    // By the names of the settings, because that is where the mistake is.
    for (setting, wanted) in [("key", Some(&sweep.row_key)), ("emit.key", sweep.event_key.as_ref())] {
        if let Some(column) = wanted.filter(|wanted| !found.contains(wanted)) {
            let there = found.join(", ");
            return Err(wrong(sweep, format!("{setting} names the column {column}, its query has {there}")));
        }
    }
    // The whole of it: a column that is there twice shows only now.
    let whole = (&mut *txn).prepare(AssertSqlSafe(emitting(sweep)).into_sql_str()).await;
    whole.map_err(|e| refused(sweep, e))?;
    txn.rollback().await;
    Ok(())
}

fn wrong(sweep: &Sweep, why: impl Into<BoxError>) -> StoreError {
    StoreError::new(ErrorClass::Failed, format!("checking sweep {}", sweep.name), why)
}

fn refused(sweep: &Sweep, error: sqlx::Error) -> StoreError {
    match class_of_driver(&error) {
        // A table that is missing now may be there later.
        class @ (ErrorClass::Failed | ErrorClass::Environment) => {
            wrong(sweep, format!("PostgreSQL refuses the query: {error}")).with_class(class)
        }
        class => wrong(sweep, error).with_class(class),
    }
}

async fn columns(conn: &mut sqlx::PgConnection, sweep: &Sweep) -> sqlx::Result<Vec<String>> {
    let sql = format!("SELECT * FROM (\n{}\n) AS q", query(sweep));
    let described = conn.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
    Ok(described.columns().iter().map(|column| column.name().to_owned()).collect())
}

/// One statement, so that what was remembered and what was emitted come from the same rows. A row that another process
/// remembers at this moment is waited for, and then it is not ours. In the order of their keys, so that two sweeps do not
/// deadlock.
///
/// The query is a relation inside of it: PostgreSQL takes only one statement here, and no writing ones.
///
/// The window says its type, because the check prepares this text without arguments: PostgreSQL would take it for a double
/// then, and sqlx would send the eight bytes of a bigint to the statement it remembers, which is a window of nothing.
fn emitting(sweep: &Sweep) -> String {
    let event_key = sweep.event_key.as_deref().map_or_else(
        || "NULL::bytea".to_owned(),
        |column| format!("convert_to(q.{}::text, 'UTF8')", identifier(column)),
    );
    format!(
        "WITH found AS MATERIALIZED ( \
             SELECT row_number() OVER () AS place, q.{row_key}::text AS row_key, {event_key} AS key, \
                 convert_to(to_json(q)::text, 'UTF8') AS payload FROM (\n{query}\n) AS q), \
         due AS MATERIALIZED ( \
             SELECT * FROM (SELECT DISTINCT ON (row_key) * FROM found WHERE row_key IS NOT NULL \
                 ORDER BY row_key, place) AS f \
             WHERE NOT EXISTS (SELECT FROM oncebox_sweep s \
                 WHERE s.name = $1 AND s.row_key = f.row_key AND s.quiet_until > clock_timestamp()) \
             ORDER BY f.place LIMIT $3), \
         taken AS ( \
             INSERT INTO oncebox_sweep AS s (name, row_key, quiet_until) \
             SELECT $1, row_key, clock_timestamp() + $2::bigint * interval '1 millisecond' FROM due ORDER BY row_key \
             ON CONFLICT (name, row_key) DO UPDATE SET quiet_until = EXCLUDED.quiet_until \
                 WHERE s.quiet_until <= clock_timestamp() \
             RETURNING s.row_key) \
         INSERT INTO oncebox_outbox (topic, key, payload, headers) \
         SELECT $4, d.key, d.payload, json_build_object('content-type', 'application/json', 'oncebox-sweep', $1::text) \
         FROM due d JOIN taken t ON t.row_key = d.row_key ORDER BY d.place",
        row_key = identifier(&sweep.row_key),
        query = query(sweep),
    )
}

fn query(sweep: &Sweep) -> &str {
    sweep.query.trim().trim_end_matches(';')
}
