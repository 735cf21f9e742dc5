//! From one plain table to partitions.

use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use sqlx::{AssertSqlSafe, Row};

use super::{KIND, LOCK, Partitioned, STORAGE};
use crate::classify::Context;
use crate::store::PgStore;

/// More receipts than this would keep the consumers waiting for more than some ten seconds.
const MAX_MOVED: i64 = 1_000_000;

/// Nobody reads or writes receipts until this transaction ends.
const TAKE: &str = "SET LOCAL statement_timeout = '10min'; LOCK TABLE oncebox_inbox IN ACCESS EXCLUSIVE MODE";

/// One row more than may be moved is enough to know.
const COUNT: &str = "SELECT count(*) FROM (SELECT FROM oncebox_inbox LIMIT 1000001) AS counted";

/// The new table gets the owner and the privileges of the old one.
const CREATE: &str = "ALTER TABLE oncebox_inbox RENAME TO oncebox_inbox_plain; \
     ALTER TABLE oncebox_inbox_plain RENAME CONSTRAINT oncebox_inbox_pkey TO oncebox_inbox_plain_pkey; \
     CREATE TABLE oncebox_inbox (LIKE oncebox_inbox_plain INCLUDING DEFAULTS, \
         CONSTRAINT oncebox_inbox_pkey PRIMARY KEY (key)) PARTITION BY RANGE (key); \
     DO $$ DECLARE old pg_class; one record; BEGIN \
         SELECT * INTO old FROM pg_class WHERE oid = 'oncebox_inbox_plain'::regclass; \
         IF pg_get_userbyid(old.relowner) <> current_user THEN \
             EXECUTE format('ALTER TABLE oncebox_inbox OWNER TO %I', pg_get_userbyid(old.relowner)); \
         END IF; \
         FOR one IN SELECT * FROM aclexplode(old.relacl) LOOP \
             EXECUTE format('GRANT %s ON oncebox_inbox TO %s', one.privilege_type, \
                 CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(one.grantee)) END); \
         END LOOP; \
     END $$";

pub(super) async fn convert_once(store: &PgStore) -> StoreResult<Partitioned> {
    let doing = "partitioning the receipts";
    let mut txn = store.begin_aside().await?;
    sqlx::raw_sql(LOCK).execute(&mut *txn).await.context_of_ddl(doing)?;
    let kind = store.query(KIND).fetch_optional(&mut *txn).await.context_of_ddl(doing)?;
    let kind: Option<String> = kind.map(|row| row.try_get(0)).transpose().context_of_ddl(doing)?;
    match kind.as_deref() {
        Some("p") => {
            txn.rollback().await;
            return Ok(Partitioned::default());
        }
        Some(_) => {}
        None => {
            return Err(refused("there is no table oncebox_inbox: run `oncebox migrate` first".to_owned()));
        }
    }
    sqlx::raw_sql(TAKE).execute(&mut *txn).await.context_of_ddl(doing)?;
    let held: i64 =
        store.query(COUNT).fetch_one(&mut *txn).await.and_then(|row| row.try_get(0)).context_of_ddl(doing)?;
    if held > MAX_MOVED {
        txn.rollback().await;
        return Err(refused(format!(
            "oncebox_inbox holds more than {MAX_MOVED} receipts, and moving them would stop its consumers for \
             long. Purge with a shorter retention until it holds fewer, or begin with a new database; then try again"
        )));
    }
    sqlx::raw_sql(CREATE).execute(&mut *txn).await.context_of_ddl(doing)?;
    // Only UUIDv7 keys have the top bit clear, so the default partition stays small: adding a day has to search it.
    let parts = format!(
        "CREATE TABLE oncebox_inbox_other PARTITION OF oncebox_inbox \
             FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE) WITH ({STORAGE}); \
         CREATE TABLE oncebox_inbox_default PARTITION OF oncebox_inbox DEFAULT WITH ({STORAGE})"
    );
    sqlx::raw_sql(AssertSqlSafe(parts)).execute(&mut *txn).await.context_of_ddl(doing)?;
    let moved = sqlx::raw_sql("INSERT INTO oncebox_inbox SELECT * FROM oncebox_inbox_plain")
        .execute(&mut *txn)
        .await
        .context_of_ddl(doing)?
        .rows_affected();
    sqlx::raw_sql("DROP TABLE oncebox_inbox_plain").execute(&mut *txn).await.context_of_ddl(doing)?;
    txn.commit_ddl(doing).await?;
    Ok(Partitioned { converted: true, created: 0, moved })
}

fn refused(why: String) -> StoreError {
    StoreError::new(ErrorClass::Failed, "partitioning the receipts", why)
}
