//! The users' test kit on PostgreSQL: what it promises holds on a server too.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use oncebox_core::error::Result;
use oncebox_core::inbox::{Inbox, StalePolicy};
use oncebox_core::message::Message;
use oncebox_core::outbox::{Emit, Event};
use oncebox_postgres::{PgStore, TemporaryPostgres};
use oncebox_testkit::{TestInbox, message};
use sqlx::PgConnection;
use tokio::task::LocalSet;

struct Shop {
    db: TemporaryPostgres,
}

impl Shop {
    /// A hundred bolts.
    async fn new() -> Self {
        let server = std::env::var("ONCEBOX_TEST_POSTGRES").expect("ONCEBOX_TEST_POSTGRES names the server");
        let db = TemporaryPostgres::new(&server).await;
        let tables = "CREATE TABLE stock (on_hand bigint NOT NULL); INSERT INTO stock VALUES (100)";
        sqlx::raw_sql(tables).execute(&mut db.connect().await).await.unwrap();
        Self { db }
    }

    fn inbox(&self) -> Inbox<PgStore> {
        Inbox::new("stock", self.db.store()).unwrap()
    }

    fn kit(&self) -> TestInbox<PgStore> {
        TestInbox::new(self.inbox().each(deduct))
    }

    async fn on_hand(&self) -> i64 {
        let sql = "SELECT on_hand FROM stock";
        sqlx::query_scalar(sql).fetch_one(&mut self.db.connect().await).await.unwrap()
    }
}

async fn deduct(tx: &mut PgConnection, message: &Message) -> Result {
    let qty: i64 = message.json()?;
    sqlx::query("UPDATE stock SET on_hand = on_hand - $1").bind(qty).execute(&mut *tx).await?;
    tx.emit(Event::to("stock.changed").key("bolt").json(&qty)?).await?;
    Ok(())
}

#[tokio::test]
async fn a_message_changes_the_database_once_through_copies_and_crashes() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    kit.assert_changes_once(&message("order-1").json(&5), async || shop.on_hand().await).await;
    kit.crash_before_commit(&message("order-2").json(&5)).await.assert_applied_once();
    kit.crash_after_commit(&message("order-3").json(&5)).await.assert_applied_once();
    kit.deliver_twice(&message("order-4").json(&5)).await.assert_applied_once();
    assert_eq!(shop.on_hand().await, 80);
    assert_eq!(kit.emitted().await.to("stock.changed").len(), 4);
}

#[tokio::test]
async fn a_missing_table_parks_nothing_and_what_waited_is_applied_when_it_is_back() {
    let shop = Shop::new().await;
    let rename = async |sql: &'static str| {
        sqlx::raw_sql(sql).execute(&mut shop.db.connect().await).await.unwrap();
    };
    rename("ALTER TABLE stock RENAME TO shelf").await;
    let kit = shop.kit();
    kit.deliver(&message("order-1").json(&1)).await.assert_stands_still("relation \"stock\" does not exist");
    rename("ALTER TABLE shelf RENAME TO stock").await;
    kit.deliver(&message("order-2").json(&1)).await.assert_applied();
    assert_eq!(shop.on_hand().await, 98);
}

#[tokio::test]
async fn the_retention_passes() {
    let shop = Shop::new().await;
    let kit = TestInbox::new(shop.inbox().stale(StalePolicy::Park).each(deduct));
    let order = message("order-1").json(&5);
    kit.deliver_twice(&order).await.assert_applied_once();
    kit.let_retention_pass().await;
    kit.deliver(&order).await.assert_parked("older than the receipts");
}

/// A second connection writes at once, whatever becomes of the transaction of the message.
#[tokio::test]
async fn work_on_another_connection_breaks_the_promise() {
    let shop = Shop::new().await;
    let pool = shop.db.store().pool().clone();
    let kit = TestInbox::new(shop.inbox().each(async move |_: &mut PgConnection, _: &Message| {
        sqlx::query("UPDATE stock SET on_hand = on_hand - 1").execute(&pool).await?;
        Ok(())
    }));
    let order = message("order-1");
    let tasks = LocalSet::new();
    let broken = tasks.spawn_local(async move {
        kit.assert_changes_once(&order, async || shop.on_hand().await).await;
    });
    let panic = tasks.run_until(broken).await.expect_err("the promise is broken").into_panic();
    let said = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(
        said.starts_with("a transaction that did not commit has left something behind: 100 before, 99 after")
    );
}
