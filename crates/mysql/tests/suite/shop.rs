//! A database with a table of receipts that somebody wrote by hand.
#![allow(unreachable_pub, missing_docs)]

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::clock::Clock;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Adopt, Claim, Claimed, Purge, PurgePass, Purged, Retention, Store, StoreResult};
use oncebox_mysql::{MysqlStore, MysqlTxn};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};
use tokio_util::sync::CancellationToken;

use super::support::{Database, consumer};

/// A database with a table of effects, the application's own table of receipts, and a store that has adopted it.
pub struct Shop {
    pub database: Database,
    pub store: MysqlStore,
}

impl Shop {
    pub async fn new(tables: &str, adopt: Adopt) -> Self {
        Self::on(Database::create().await, tables, adopt).await
    }

    /// While no other test of this server runs.
    pub async fn new_alone(tables: &str, adopt: Adopt) -> Self {
        Self::on(Database::create_alone().await, tables, adopt).await
    }

    async fn on(database: Database, tables: &str, adopt: Adopt) -> Self {
        let store = MysqlStore::builder(&database.url).adopt(adopt).connect().await.unwrap();
        store.migrate().await.unwrap();
        let shop = Self { database, store };
        let effects =
            "CREATE TABLE effects (number BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(100) NOT NULL)";
        shop.run(&format!("{effects}; {tables}")).await;
        shop
    }

    pub async fn connect(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.database.url).await.unwrap()
    }

    pub async fn run(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.connect().await).await.unwrap();
    }

    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let rows =
            sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut self.connect().await).await.unwrap();
        rows.iter().map(|row| row.get_unchecked(0)).collect()
    }

    pub async fn apply(&self, of: &str, messages: &[Message<'_>]) -> (Vec<bool>, Vec<usize>) {
        let claimed = claim(&self.store, of, messages).await.unwrap();
        self.store.commit(claimed.txn, None).await.unwrap();
        (claimed.fresh, claimed.refused.iter().map(|one| one.at).collect())
    }

    pub async fn purge(&self) -> Purged {
        self.purge_as(false).await
    }

    pub async fn purge_as(&self, dry_run: bool) -> Purged {
        let retention = [Retention { consumer: consumer(), keep: Duration::from_secs(86_400) }];
        let now_ms = Clock::system().now_ms();
        let (stop, progress) = (CancellationToken::new(), |_| {});
        let pass = PurgePass { retention: &retention, now_ms, dry_run, stop: &stop, progress: &progress };
        self.store.purge(pass).await.unwrap()
    }

    pub async fn effects(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for id in self.texts("SELECT id FROM effects").await {
            *counts.entry(id).or_default() += 1;
        }
        counts
    }
}

/// Tenant, id, and what further columns get.
pub type Message<'a> = (&'a str, &'a str, &'a [Option<String>]);

pub fn ids<'a>(ids: &[&'a str]) -> Vec<Message<'a>> {
    ids.iter().map(|id| ("", *id, &[][..])).collect()
}

pub async fn claim(store: &MysqlStore, of: &str, messages: &[Message<'_>]) -> StoreResult<Claimed<MysqlTxn>> {
    let consumer = ConsumerName::new(of).unwrap();
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

pub fn adopt(table: &str, message_id: &str) -> Adopt {
    Adopt::table(table, message_id).unwrap()
}
