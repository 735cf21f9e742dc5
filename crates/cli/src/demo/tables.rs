//! The demo's business tables in a database that speaks SQL, and the questions that the verdict asks of them.

use super::CONSUMER;
use super::database::{INITIAL_STOCK, SKUS};
use super::pool::Pool;
use crate::exit::Failure;

/// Where oncebox keeps what belongs to a consumer.
const OF_CONSUMERS: [&str; 7] = [
    "oncebox_position",
    "oncebox_inbox",
    "oncebox_dead",
    "oncebox_attempt",
    "oncebox_horizon",
    "oncebox_paused",
    "oncebox_replayed",
];

/// Connections, and what is asked of them.
pub(crate) struct Tables {
    pub(crate) pool: Pool,
}

impl Tables {
    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        // MySQL has no key of any length, and by default takes some texts for the same that are not.
        let (text, counter) = match self.pool {
            Pool::Mysql(_) => {
                ("VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "BIGINT AUTO_INCREMENT PRIMARY KEY")
            }
            Pool::Postgres(_) => ("TEXT", "BIGSERIAL PRIMARY KEY"),
            Pool::Sqlite(_) => ("TEXT", "INTEGER PRIMARY KEY AUTOINCREMENT"),
        };
        if matches!(self.pool, Pool::Sqlite(_)) {
            self.pool.execute("PRAGMA journal_mode = WAL").await?;
        }
        for statement in [
            format!("CREATE TABLE oncebox_demo_stock (sku {text} PRIMARY KEY, on_hand BIGINT NOT NULL)"),
            format!(
                "CREATE TABLE oncebox_demo_ledger (n {counter}, message_id {text}, sku {text}, qty BIGINT, seq BIGINT)"
            ),
        ] {
            self.pool.execute(&statement).await?;
        }
        let stock: Vec<_> = (0..SKUS).map(|sku| format!("('sku-{sku}', {INITIAL_STOCK})")).collect();
        let insert = format!("INSERT INTO oncebox_demo_stock (sku, on_hand) VALUES {}", stock.join(", "));
        self.pool.execute(&insert).await
    }

    /// The handler's statements, in the dialect of the database.
    pub(crate) fn steps(&self) -> [String; 2] {
        let statements = match self.pool {
            // Understood by MySQL and by MariaDB, which has no `->>`.
            Pool::Mysql(_) => [
                "UPDATE oncebox_demo_stock SET on_hand = on_hand - CAST(JSON_VALUE(:payload, '$.qty') AS SIGNED) WHERE sku = JSON_VALUE(:payload, '$.sku')",
                "INSERT INTO oncebox_demo_ledger (message_id, sku, qty, seq) VALUES (:id, JSON_VALUE(:payload, '$.sku'), JSON_VALUE(:payload, '$.qty'), JSON_VALUE(:payload, '$.seq'))",
            ],
            Pool::Postgres(_) => [
                "UPDATE oncebox_demo_stock SET on_hand = on_hand - (:payload->>'qty')::bigint WHERE sku = :payload->>'sku'",
                "INSERT INTO oncebox_demo_ledger (message_id, sku, qty, seq) VALUES (:id, :payload->>'sku', (:payload->>'qty')::bigint, (:payload->>'seq')::bigint)",
            ],
            Pool::Sqlite(_) => [
                "UPDATE oncebox_demo_stock SET on_hand = on_hand - (:payload->>'qty') WHERE sku = :payload->>'sku'",
                "INSERT INTO oncebox_demo_ledger (message_id, sku, qty, seq) VALUES (:id, :payload->>'sku', :payload->>'qty', :payload->>'seq')",
            ],
        };
        statements.map(|sql| format!("{{ sql = \"{sql}\", rows = 1 }}"))
    }

    pub(crate) async fn effects(&self) -> Result<i64, Failure> {
        self.pool.number("COUNT(*)", "oncebox_demo_ledger").await
    }

    pub(crate) async fn distinct_effects(&self) -> Result<i64, Failure> {
        self.pool.number("COUNT(DISTINCT message_id)", "oncebox_demo_ledger").await
    }

    pub(crate) async fn out_of_order(&self) -> Result<i64, Failure> {
        let with_previous = "(SELECT seq, LAG(seq) OVER (PARTITION BY sku ORDER BY n) AS previous FROM oncebox_demo_ledger WHERE seq >= 0)";
        self.pool.number("COUNT(*)", &format!("{with_previous} AS l WHERE seq < previous")).await
    }

    pub(crate) async fn stock_left(&self) -> Result<i64, Failure> {
        self.pool.number("COALESCE(SUM(on_hand), 0)", "oncebox_demo_stock").await
    }

    pub(crate) async fn taken_by_mended(&self) -> Result<i64, Failure> {
        self.pool.number("COALESCE(SUM(qty), 0)", "oncebox_demo_ledger WHERE seq < 0").await
    }

    pub(crate) async fn dead_letters(&self) -> Result<i64, Failure> {
        self.of_consumer("COUNT(*)", "oncebox_dead").await
    }

    pub(crate) async fn read_up_to(&self) -> Result<i64, Failure> {
        self.of_consumer("COALESCE(SUM(next_offset), 0)", "oncebox_position").await
    }

    pub(crate) async fn duplicates(&self) -> Result<i64, Failure> {
        self.of_consumer("COALESCE(SUM(duplicates), 0)", "oncebox_position").await
    }

    /// Our own tables, and what an earlier demo left in oncebox's.
    pub(crate) async fn drop_all(&self) -> Result<(), Failure> {
        for table in ["oncebox_demo_stock", "oncebox_demo_ledger"] {
            self.pool.execute(&format!("DROP TABLE IF EXISTS {table}")).await?;
        }
        for table in OF_CONSUMERS {
            if self.has(table).await? {
                self.pool.execute(&format!("DELETE FROM {table} WHERE consumer = '{CONSUMER}'")).await?;
            }
        }
        Ok(())
    }

    /// The consumers make oncebox's tables when they start.
    async fn of_consumer(&self, expression: &str, table: &str) -> Result<i64, Failure> {
        if !self.has(table).await? {
            return Ok(0);
        }
        self.pool.number(expression, &format!("{table} WHERE consumer = '{CONSUMER}'")).await
    }

    async fn has(&self, table: &str) -> Result<bool, Failure> {
        let table = format!("'{table}'");
        let found = match self.pool {
            Pool::Mysql(_) => {
                let named = format!("table_schema = DATABASE() AND table_name = {table}");
                self.pool.number("COUNT(*)", &format!("information_schema.tables WHERE {named}")).await?
            }
            Pool::Postgres(_) => {
                self.pool.number("COUNT(name)", &format!("to_regclass({table}) AS name")).await?
            }
            Pool::Sqlite(_) => {
                self.pool.number("COUNT(*)", &format!("sqlite_master WHERE name = {table}")).await?
            }
        };
        Ok(found > 0)
    }
}
