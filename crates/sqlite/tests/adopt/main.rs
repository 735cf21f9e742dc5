//! Tables that people wrote by hand, taken over as they are.

#![allow(clippy::unwrap_used, clippy::panic)] // a panic is how a test fails

mod definitions;
mod moving;
mod side_by_side;

use std::collections::BTreeMap;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Adopt, Claim, Claimed, Store, StoreResult};
use oncebox_sqlite::{SqliteStore, SqliteTxn};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Row, SqliteConnection};
use tempfile::TempDir;

/// A file with a table of effects, the application's own table of receipts, and a store that has adopted it.
struct Shop {
    folder: TempDir,
    store: SqliteStore,
}

impl Shop {
    async fn new(tables: &str, adopt: Adopt) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("shop.db").display());
        let store = SqliteStore::builder(&url).adopt(adopt).connect().await.unwrap();
        store.migrate().await.unwrap();
        let shop = Self { folder, store };
        shop.run(&format!("CREATE TABLE effects (number INTEGER PRIMARY KEY, id TEXT NOT NULL); {tables}"))
            .await;
        shop
    }

    async fn connect(&self) -> SqliteConnection {
        let path = self.folder.path().join("shop.db");
        let options =
            SqliteConnectOptions::new().filename(path).busy_timeout(std::time::Duration::from_secs(30));
        options.connect().await.unwrap()
    }

    async fn own(&self) -> SqliteStore {
        let url = format!("sqlite://{}", self.folder.path().join("shop.db").display());
        SqliteStore::connect(&url).await.unwrap()
    }

    async fn run(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.connect().await).await.unwrap();
    }

    async fn texts(&self, sql: &str) -> Vec<String> {
        let rows =
            sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&mut self.connect().await).await.unwrap();
        rows.iter().map(|row| row.get_unchecked(0)).collect()
    }

    /// Which were fresh, and which were refused.
    async fn apply(&self, consumer: &str, messages: &[Message<'_>]) -> (Vec<bool>, Vec<usize>) {
        let claimed = claim(&self.store, consumer, messages).await.unwrap();
        self.store.commit(claimed.txn, None).await.unwrap();
        (claimed.fresh, claimed.refused.iter().map(|one| one.at).collect())
    }

    /// How often each message was applied.
    async fn effects(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for id in self.texts("SELECT id FROM effects").await {
            *counts.entry(id).or_default() += 1;
        }
        counts
    }
}

/// Tenant, id, and what further columns get.
type Message<'a> = (&'a str, &'a str, &'a [Option<String>]);

fn ids<'a>(ids: &[&'a str]) -> Vec<Message<'a>> {
    ids.iter().map(|id| ("", *id, &[][..])).collect()
}

async fn claim(
    store: &SqliteStore,
    consumer: &str,
    messages: &[Message<'_>],
) -> StoreResult<Claimed<SqliteTxn>> {
    let consumer = ConsumerName::new(consumer).unwrap();
    let claims: Vec<_> = messages
        .iter()
        .map(|(tenant, message_id, set)| {
            let scope = Tenant::new(*tenant).unwrap();
            let key = ReceiptKey::of(&consumer, &scope, &MessageId::new(*message_id).unwrap());
            Claim { key, tenant, message_id, set, fingerprint: None }
        })
        .collect();
    store.claim(&consumer, &claims).await
}

fn adopt(table: &str, message_id: &str) -> Adopt {
    Adopt::table(table, message_id).unwrap()
}
