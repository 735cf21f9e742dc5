//! What `oncebox status` and the dashboard read. Its cost does not grow with the tables.

use oncebox_core::store::{ConsumerStatus, Duplicates, PositionStatus, Status, StoreResult, StoreStatus};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use crate::adopted;
use crate::classify::Context;
use crate::outbox;
use crate::store::MysqlStore;
use crate::time::in_ms;

impl Status for MysqlStore {
    async fn status(&self, count_cap: u64) -> StoreResult<StoreStatus> {
        let doing = "reading the status";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let status = read(self, &mut txn, count_cap).await.context(doing)?;
            txn.rollback().await;
            Ok(status)
        })
        .await
    }
}

/// A status that takes longer is not worth its load: MariaDB is told for the transaction, MySQL with each statement. MySQL would
/// also tell yesterday's numbers.
const LIMIT: &str = "/*M! SET SESSION max_statement_time = 5 */ \
     /*!80000 SET SESSION information_schema_stats_expiry = 60 */";

/// More positions than this are not shown.
const POSITIONS: &str = concat!(
    "SELECT /*+ MAX_EXECUTION_TIME(5000) */ consumer, topic, `partition`, next_offset, epoch, starts, applied, duplicates, redelivered, \
     rewound, published_twice, ",
    in_ms!("updated_at"),
    " AS updated_at_ms, log, ",
    in_ms!("caught_up_at"),
    " AS caught_up_ms, retired_at IS NOT NULL AS retired \
     FROM oncebox_position ORDER BY consumer, topic, `partition` LIMIT 10000"
);

/// The server goes from one consumer to the next along the indexes.
const CONSUMERS: &str = concat!(
    "SELECT /*+ MAX_EXECUTION_TIME(5000) */ k.consumer, (SELECT ",
    in_ms!("h.purged_before"),
    " FROM oncebox_horizon AS h WHERE h.consumer = k.consumer), \
         (SELECT r.replayed FROM oncebox_replayed AS r WHERE r.consumer = k.consumer) \
     FROM (SELECT DISTINCT consumer FROM oncebox_position UNION SELECT consumer FROM oncebox_horizon \
         UNION SELECT consumer FROM oncebox_replayed UNION SELECT DISTINCT consumer FROM oncebox_dead) AS k \
     ORDER BY k.consumer"
);

const LETTERS: &str =
    "SELECT COUNT(*) FROM (SELECT 1 FROM oncebox_dead WHERE consumer = ? LIMIT ?) AS counted";

async fn read(store: &MysqlStore, conn: &mut MySqlConnection, count_cap: u64) -> sqlx::Result<StoreStatus> {
    let cap = i64::try_from(count_cap).unwrap_or(i64::MAX);
    sqlx::raw_sql(LIMIT).execute(&mut *conn).await?;
    let positions = store.query(POSITIONS).fetch_all(&mut *conn).await?;
    let mut consumers = Vec::new();
    for row in store.query(CONSUMERS).fetch_all(&mut *conn).await? {
        let consumer: String = row.try_get(0)?;
        let letters = store.query(LETTERS).bind(&consumer).bind(cap).fetch_one(&mut *conn).await?;
        consumers.push(ConsumerStatus {
            dead_letters: letters.try_get::<i64, _>(0)?.unsigned_abs(),
            purged_before_ms: row.try_get(1)?,
            replayed: row.try_get::<Option<i64>, _>(2)?.unwrap_or_default().unsigned_abs(),
            consumer,
        });
    }
    Ok(StoreStatus {
        positions: positions.iter().map(position).collect::<sqlx::Result<_>>()?,
        consumers,
        receipts_estimate: receipts_estimate(store, &mut *conn, count_cap).await?,
        outbox: outbox::status::status(store, conn, cap).await?,
    })
}

/// How many receipts there are. The server only guesses how many rows a table has: up to the cap the number is counted; beyond,
/// it is the guess.
pub(crate) async fn receipts_estimate(
    store: &MysqlStore,
    conn: &mut MySqlConnection,
    count_cap: u64,
) -> sqlx::Result<u64> {
    const GUESS: &str = "SELECT CAST(table_rows AS SIGNED) FROM information_schema.tables \
         WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";
    let cap = i64::try_from(count_cap).unwrap_or(i64::MAX);
    let (schema, name, table) = match adopted::adopted(store) {
        Some(adopt) => (adopt.schema(), adopt.table_name(), adopt.quoted('`')),
        None => (None, "oncebox_inbox", "oncebox_inbox".to_owned()),
    };
    let count = format!("SELECT COUNT(*) FROM (SELECT 1 FROM {table} LIMIT ?) AS counted");
    let counted: i64 = store.query(AssertSqlSafe(count)).bind(cap).fetch_one(&mut *conn).await?.try_get(0)?;
    if counted < cap {
        return Ok(counted.unsigned_abs());
    }
    let guess = store.query(GUESS).bind(schema).bind(name).fetch_optional(conn).await?;
    let guess: Option<i64> = guess.map(|row| row.try_get(0)).transpose()?.flatten();
    Ok(guess.unwrap_or_default().max(counted).unsigned_abs())
}

fn position(row: &MySqlRow) -> sqlx::Result<PositionStatus> {
    let count = |column: &str| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(column)?.unsigned_abs());
    Ok(PositionStatus {
        consumer: row.try_get("consumer")?,
        topic: row.try_get("topic")?,
        partition: row.try_get("partition")?,
        next_offset: row.try_get("next_offset")?,
        epoch: row.try_get("epoch")?,
        starts: row.try_get::<i32, _>("starts")?.unsigned_abs(),
        applied: count("applied")?,
        duplicates: Duplicates::stored(
            count("duplicates")?,
            count("redelivered")?,
            count("rewound")?,
            count("published_twice")?,
        ),
        updated_at_ms: row.try_get("updated_at_ms")?,
        log: row.try_get("log")?,
        caught_up_ms: row.try_get("caught_up_ms")?,
        retired: row.try_get("retired")?,
    })
}
