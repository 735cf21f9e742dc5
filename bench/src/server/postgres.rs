//! PostgreSQL.

use anyhow::Result;
use oncebox::postgres::PgStore;
use oncebox::sql::SqlInbox;
use oncebox::{Inbox, Message, Worker};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{Applied, Server, Update};
use crate::contestant::Contestant;

pub(crate) struct Postgres(PgConnection);

/// The effect in SQL, per message.
const EACH: [&str; 2] = [
    "UPDATE stock SET on_hand = on_hand - (:payload->>'qty')::int WHERE sku = :payload->>'sku'",
    "INSERT INTO ledger (message_id, sku, qty) VALUES (:id, :payload->>'sku', (:payload->>'qty')::int)",
];

/// And per batch.
const BATCH: [&str; 2] = [
    "UPDATE stock SET on_hand = on_hand - d.qty FROM (SELECT payload->>'sku' AS sku, sum((payload->>'qty')::int) AS qty FROM messages GROUP BY 1) AS d WHERE stock.sku = d.sku",
    "INSERT INTO ledger (message_id, sku, qty) SELECT id, payload->>'sku', (payload->>'qty')::int FROM messages",
];

impl Server for Postgres {
    const CONTESTANTS: &'static [Contestant] = &Contestant::ON_SQL;

    type Store = PgStore;

    fn each() -> String {
        format!("each = {EACH:?}")
    }

    fn batch() -> String {
        format!("batch = {BATCH:?}")
    }

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(PgConnection::connect(url).await?))
    }

    async fn create(&mut self, name: &str) -> Result<()> {
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut self.0).await?;
        Ok(())
    }

    async fn fill(&mut self) -> Result<()> {
        sqlx::raw_sql(
            "CREATE TABLE stock (sku text PRIMARY KEY, on_hand bigint NOT NULL) WITH (fillfactor = 50);
             CREATE TABLE ledger (n bigserial PRIMARY KEY, message_id text, sku text, qty int, at timestamptz DEFAULT now());
             CREATE TABLE received (consumer text, message_id text, at timestamptz DEFAULT now(), PRIMARY KEY (consumer, message_id));
             INSERT INTO stock SELECT 'sku-' || n, 1000000000 FROM generate_series(0, 999) AS n;
             CHECKPOINT;",
        )
        .execute(&mut self.0)
        .await?;
        Ok(())
    }

    async fn drop(&mut self, name: &str) -> Result<()> {
        sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).execute(&mut self.0).await?;
        Ok(())
    }

    async fn at_most(&mut self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT last_value FROM ledger_n_seq").fetch_one(&mut self.0).await?)
    }

    async fn effects(&mut self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT count(*) FROM ledger").fetch_one(&mut self.0).await?)
    }

    async fn applied(&mut self) -> Result<Applied> {
        let (seconds, effects) = sqlx::query_as(
            "SELECT extract(epoch FROM max(at) - min(at))::float8, \
             count(*) FILTER (WHERE at < (SELECT max(at) FROM ledger)) FROM ledger",
        )
        .fetch_one(&mut self.0)
        .await?;
        Ok(Applied { seconds, effects })
    }

    async fn apply_by_hand(&mut self, id: &str, update: &Update) -> Result<()> {
        Ok(apply_by_hand(&mut self.0, id, update).await?)
    }

    async fn store(url: &str) -> Result<PgStore> {
        let store = PgStore::connect(url).await?;
        store.migrate().await?;
        Ok(store)
    }

    async fn deduct(tx: &mut PgConnection, message: &Message) -> oncebox::Result {
        Ok(deduct(tx, message.id().as_str(), &message.json()?).await?)
    }

    async fn grouped(inbox: Inbox<PgStore>) -> Result<Worker<PgStore>> {
        Ok(inbox.sql_each(EACH).await?)
    }
}

/// BEGIN, receipt, effect, COMMIT.
pub(crate) async fn apply_by_hand(conn: &mut PgConnection, id: &str, update: &Update) -> sqlx::Result<()> {
    let mut tx = conn.begin().await?;
    let receipt = sqlx::query(
        "INSERT INTO received (consumer, message_id) VALUES ('stock', $1) ON CONFLICT DO NOTHING",
    )
    .bind(id)
    .execute(&mut *tx)
    .await?;
    if receipt.rows_affected() == 1 {
        deduct(&mut tx, id, update).await?;
    }
    tx.commit().await
}

async fn deduct(conn: &mut PgConnection, id: &str, update: &Update) -> sqlx::Result<()> {
    sqlx::query("UPDATE stock SET on_hand = on_hand - $1 WHERE sku = $2")
        .bind(update.qty)
        .bind(&update.sku)
        .execute(&mut *conn)
        .await?;
    sqlx::query("INSERT INTO ledger (message_id, sku, qty) VALUES ($1, $2, $3)")
        .bind(id)
        .bind(&update.sku)
        .bind(update.qty)
        .execute(conn)
        .await?;
    Ok(())
}
