//! Tables that people wrote by hand, taken over as they are.

#![allow(clippy::unwrap_used, clippy::panic)] // a panic is how a test fails

mod columns;
mod definitions;
mod moving;
mod side_by_side;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::clock::Clock;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Adopt, Claim, Claimed, Purge, PurgePass, Purged, Retention, Store, StoreResult};
use oncebox_postgres::{PgStore, PgTxn};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use support::Database;
use tokio_util::sync::CancellationToken;

/// A database with a table of effects, the application's own table of receipts, and a store that has adopted it.
struct Shop {
    database: Database,
    store: PgStore,
}

impl Shop {
    async fn new(tables: &str, adopt: Adopt) -> Self {
        let database = Database::create().await;
        let effects = "CREATE TABLE effects (number bigserial, id text NOT NULL)";
        let mut conn = PgConnection::connect(&database.url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("{effects}; {tables}"))).execute(&mut conn).await.unwrap();
        let store = PgStore::builder(&database.url).adopt(adopt).connect().await.unwrap();
        store.migrate().await.unwrap();
        Self { database, store }
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.database.url).await.unwrap()
    }

    async fn run(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.connect().await).await.unwrap();
    }

    async fn texts(&self, sql: &str) -> Vec<String> {
        let rows =
            sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&mut self.connect().await).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn claim(&self, consumer: &str, messages: &[Message<'_>]) -> StoreResult<Claimed<PgTxn>> {
        claim(&self.store, consumer, messages).await
    }

    /// Which were fresh, and which were refused.
    async fn apply(&self, consumer: &str, messages: &[Message<'_>]) -> (Vec<bool>, Vec<usize>) {
        let Claimed { txn, fresh, collisions, refused, .. } = self.claim(consumer, messages).await.unwrap();
        assert_eq!(collisions, [0; 0]);
        self.store.commit(txn, None).await.unwrap();
        (fresh, refused.iter().map(|one| one.at).collect())
    }

    async fn purge(&self, keep: Duration) -> Purged {
        let retention = [Retention { consumer: ConsumerName::new("stock").unwrap(), keep }];
        let now_ms = Clock::system().now_ms();
        let (stop, progress) = (CancellationToken::new(), |_| {});
        let pass =
            PurgePass { retention: &retention, now_ms, dry_run: false, stop: &stop, progress: &progress };
        self.store.purge(pass).await.unwrap()
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

async fn claim(store: &PgStore, consumer: &str, messages: &[Message<'_>]) -> StoreResult<Claimed<PgTxn>> {
    let consumer = ConsumerName::new(consumer).unwrap();
    let claim = |(tenant, id, set): &Message<'_>| {
        let key = ReceiptKey::of(&consumer, &Tenant::new(*tenant).unwrap(), &MessageId::new(*id).unwrap());
        (key, tenant.to_string(), id.to_string(), set.to_vec())
    };
    let owned: Vec<_> = messages.iter().map(claim).collect();
    let claims: Vec<_> = owned
        .iter()
        .map(|(key, tenant, message_id, set)| Claim { key: *key, tenant, message_id, set, fingerprint: None })
        .collect();
    store.claim(&consumer, &claims).await
}

fn adopt(table: &str, message_id: &str) -> Adopt {
    Adopt::table(table, message_id).unwrap()
}
