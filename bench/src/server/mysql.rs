//! MySQL and MariaDB.

use anyhow::{Context, Result};
use oncebox::mysql::MysqlStore;
use oncebox::sql::SqlInbox;
use oncebox::{Inbox, Message, Worker};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use super::{Applied, Server, Update};
use crate::contestant::Contestant;

pub(crate) struct Mysql(MySqlConnection);

/// The effect in SQL, per message.
const EACH: [&str; 2] = [
    "UPDATE stock SET on_hand = on_hand - JSON_VALUE(:payload, '$.qty') WHERE sku = JSON_VALUE(:payload, '$.sku')",
    "INSERT INTO ledger (message_id, sku, qty) VALUES (:id, JSON_VALUE(:payload, '$.sku'), JSON_VALUE(:payload, '$.qty'))",
];

/// And per batch.
const BATCH: [&str; 2] = [
    "UPDATE stock JOIN (SELECT JSON_VALUE(payload, '$.sku') AS sku, SUM(JSON_VALUE(payload, '$.qty')) AS qty FROM messages GROUP BY 1) AS d ON stock.sku = d.sku SET stock.on_hand = stock.on_hand - d.qty",
    "INSERT INTO ledger (message_id, sku, qty) SELECT id, JSON_VALUE(payload, '$.sku'), JSON_VALUE(payload, '$.qty') FROM messages",
];

impl Server for Mysql {
    const CONTESTANTS: &'static [Contestant] = &Contestant::ON_SQL;

    type Store = MysqlStore;

    fn each() -> String {
        format!("each = {EACH:?}")
    }

    fn batch() -> String {
        format!("batch = {BATCH:?}")
    }

    fn url(server: &str, name: &str) -> Result<String> {
        let (base, _) = server.rsplit_once('/').context("the server's URL has no database")?;
        // MySQL would offer TLS, and larger packets stall in it on loopback.
        Ok(format!("{base}/{name}?ssl-mode=DISABLED"))
    }

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(MySqlConnection::connect(url).await?))
    }

    async fn create(&mut self, name: &str) -> Result<()> {
        let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut self.0).await?;
        Ok(())
    }

    async fn fill(&mut self) -> Result<()> {
        let skus: Vec<String> = (0..1000).map(|n| format!("('sku-{n}', 1000000000)")).collect();
        let fill = format!(
            "CREATE TABLE stock (sku varchar(64) PRIMARY KEY, on_hand bigint NOT NULL);
             CREATE TABLE ledger (n bigint AUTO_INCREMENT PRIMARY KEY, message_id varchar(64), sku varchar(64), qty int,
                 at datetime(6) DEFAULT CURRENT_TIMESTAMP(6));
             CREATE TABLE received (consumer varchar(64), message_id varchar(64), at datetime(6) DEFAULT CURRENT_TIMESTAMP(6),
                 PRIMARY KEY (consumer, message_id));
             INSERT INTO stock VALUES {}",
            skus.join(", ")
        );
        sqlx::raw_sql(AssertSqlSafe(fill)).execute(&mut self.0).await?;
        Ok(())
    }

    async fn drop(&mut self, name: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE {name}"))).execute(&mut self.0).await?;
        Ok(())
    }

    async fn at_most(&mut self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT COALESCE(MAX(n), 0) FROM ledger").fetch_one(&mut self.0).await?)
    }

    async fn effects(&mut self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT COUNT(*) FROM ledger").fetch_one(&mut self.0).await?)
    }

    async fn applied(&mut self) -> Result<Applied> {
        let (microseconds, effects): (i64, i64) = sqlx::query_as(
            "SELECT TIMESTAMPDIFF(MICROSECOND, MIN(at), MAX(at)), \
             CAST(SUM(at < (SELECT MAX(at) FROM ledger)) AS SIGNED) FROM ledger",
        )
        .fetch_one(&mut self.0)
        .await?;
        Ok(Applied { seconds: microseconds as f64 / 1e6, effects })
    }

    async fn apply_by_hand(&mut self, id: &str, update: &Update) -> Result<()> {
        let mut tx = self.0.begin().await?;
        let receipt = sqlx::query("INSERT IGNORE INTO received (consumer, message_id) VALUES ('stock', ?)")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        if receipt.rows_affected() == 1 {
            deduct(&mut tx, id, update).await?;
        }
        Ok(tx.commit().await?)
    }

    async fn store(url: &str) -> Result<MysqlStore> {
        let store = MysqlStore::connect(url).await?;
        store.migrate().await?;
        Ok(store)
    }

    async fn deduct(tx: &mut MySqlConnection, message: &Message) -> oncebox::Result {
        Ok(deduct(tx, message.id().as_str(), &message.json()?).await?)
    }

    async fn grouped(inbox: Inbox<MysqlStore>) -> Result<Worker<MysqlStore>> {
        Ok(inbox.sql_each(EACH).await?)
    }
}

async fn deduct(conn: &mut MySqlConnection, id: &str, update: &Update) -> sqlx::Result<()> {
    sqlx::query("UPDATE stock SET on_hand = on_hand - ? WHERE sku = ?")
        .bind(update.qty)
        .bind(&update.sku)
        .execute(&mut *conn)
        .await?;
    sqlx::query("INSERT INTO ledger (message_id, sku, qty) VALUES (?, ?, ?)")
        .bind(id)
        .bind(&update.sku)
        .bind(update.qty)
        .execute(conn)
        .await?;
    Ok(())
}
