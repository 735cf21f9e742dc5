//! What is in the test's database, whichever it is.

use super::Database;
use super::pool::Pool;

impl Database {
    /// The position of each partition of a consumer.
    pub(crate) async fn positions(&self, consumer: &str) -> Vec<(i64, i64)> {
        if let Pool::Mongodb(db) = &self.pool {
            return db.positions(consumer).await;
        }
        self.pairs(&format!(
            "SELECT CAST(\"partition\" AS BIGINT), next_offset FROM oncebox_position \
             WHERE consumer = '{consumer}' AND next_offset IS NOT NULL ORDER BY \"partition\""
        ))
        .await
    }

    /// How many copies the positions of a consumer say were skipped.
    pub(crate) async fn duplicates(&self, consumer: &str) -> i64 {
        if let Pool::Mongodb(db) = &self.pool {
            return db.duplicates(consumer).await;
        }
        self.number(&format!(
            "SELECT CAST(COALESCE(SUM(duplicates), 0) AS BIGINT) FROM oncebox_position WHERE consumer = '{consumer}'"
        ))
        .await
    }

    /// How many partitions have had more than one owner.
    pub(crate) async fn partitions_that_moved(&self) -> i64 {
        if let Pool::Mongodb(db) = &self.pool {
            return db.partitions_that_moved().await;
        }
        self.number("SELECT CAST(COUNT(*) AS BIGINT) FROM oncebox_position WHERE epoch > 1").await
    }

    /// How many partitions were never caught up, as far as the database knows.
    pub(crate) async fn behind(&self) -> i64 {
        if let Pool::Mongodb(db) = &self.pool {
            return db.behind().await;
        }
        self.number("SELECT COUNT(*) FROM oncebox_position WHERE caught_up_at IS NULL AND retired_at IS NULL")
            .await
    }

    /// Leaves behind the position of a topic that nobody reads.
    pub(crate) async fn leave_position(&self, consumer: &str, topic: &str) {
        if let Pool::Mongodb(db) = &self.pool {
            return db.leave_position(consumer, topic).await;
        }
        self.execute(&format!(
            "INSERT INTO oncebox_position (consumer, topic, \"partition\", next_offset, epoch) \
             VALUES ('{consumer}', '{topic}', 0, 5, 1)"
        ))
        .await;
    }

    /// The tenants of all receipts.
    pub(crate) async fn tenants(&self) -> Vec<String> {
        if let Pool::Mongodb(db) = &self.pool {
            return db.tenants().await;
        }
        self.texts("SELECT tenant FROM oncebox_inbox ORDER BY tenant").await
    }

    pub(crate) async fn rows(&self, table: &str) -> i64 {
        if let Pool::Mongodb(db) = &self.pool {
            return db.rows(table).await;
        }
        self.number(&format!("SELECT CAST(COUNT(*) AS BIGINT) FROM {table}")).await
    }

    /// How many rows one of our tables has of a consumer.
    pub(crate) async fn rows_of(&self, table: &str, consumer: &str) -> i64 {
        if let Pool::Mongodb(db) = &self.pool {
            return db.rows_of(table, consumer).await;
        }
        self.number(&format!("SELECT CAST(COUNT(*) AS BIGINT) FROM {table} WHERE consumer = '{consumer}'"))
            .await
    }

    /// The message ids of a consumer in one of our tables, or in the ledger.
    pub(crate) async fn message_ids(&self, table: &str, consumer: &str) -> Vec<String> {
        if let Pool::Mongodb(db) = &self.pool {
            return db.message_ids(table, consumer).await;
        }
        self.texts(&format!("SELECT message_id FROM {table} WHERE consumer = '{consumer}'")).await
    }

    /// The texts of a column of the dead letters, in their order.
    pub(crate) async fn dead(&self, column: &str) -> Vec<String> {
        if let Pool::Mongodb(db) = &self.pool {
            return db.dead(column).await;
        }
        self.texts(&format!("SELECT {column} FROM oncebox_dead ORDER BY number")).await
    }

    /// Messages that were applied behind a later order of the same article.
    pub(crate) async fn swapped(&self) -> Vec<String> {
        if let Pool::Mongodb(db) = &self.pool {
            return db.swapped().await;
        }
        self.texts(
            "SELECT message_id FROM (SELECT message_id, seq, \
             LAG(seq) OVER (PARTITION BY consumer, sku ORDER BY n) AS previous FROM ledger) AS l \
             WHERE seq <= previous",
        )
        .await
    }

    /// What is gone from the stock.
    pub(crate) async fn gone(&self) -> i64 {
        match &self.pool {
            Pool::Mongodb(db) => db.gone_and_taken().await.0,
            _ => self.number("SELECT CAST(SUM(delivered - on_hand) AS BIGINT) FROM stock").await,
        }
    }

    /// What is gone from the stock, and what the ledger says was taken.
    pub(crate) async fn gone_and_taken(&self) -> (i64, i64) {
        if let Pool::Mongodb(db) = &self.pool {
            return db.gone_and_taken().await;
        }
        (self.gone().await, self.number("SELECT CAST(COALESCE(SUM(qty), 0) AS BIGINT) FROM ledger").await)
    }

    /// How many different values a column of the ledger has.
    pub(crate) async fn different(&self, column: &str) -> i64 {
        if let Pool::Mongodb(db) = &self.pool {
            return db.different(column).await;
        }
        self.number(&format!("SELECT CAST(COUNT(DISTINCT {column}) AS BIGINT) FROM ledger")).await
    }

    /// In one snapshot: receipts without effect, and effects without a receipt of their own.
    pub(crate) async fn odd_receipts(&self) -> i64 {
        if let Pool::Mongodb(db) = &self.pool {
            return db.odd_receipts().await;
        }
        self.number(
            "SELECT COUNT(*) FROM (SELECT consumer, message_id FROM \
             (SELECT consumer, message_id, 1 AS n FROM oncebox_inbox UNION ALL \
             SELECT consumer, message_id, -1 AS n FROM ledger) AS both_of_them \
             GROUP BY consumer, message_id HAVING SUM(n) <> 0) AS odd",
        )
        .await
    }
}
