//! A shop with one shelf, and the handlers that serve it.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use oncebox::sqlite::SqliteStore;
use oncebox::testing::{TemporarySqlite, TestInbox};
use oncebox::{Emit, Event, Inbox, Message, Selector, reject};
use serde_json::json;
use sqlx::SqliteConnection;

pub(crate) struct Shop {
    pub(crate) db: TemporarySqlite,
}

impl Shop {
    /// A hundred bolts.
    pub(crate) async fn new() -> Self {
        let db = TemporarySqlite::new().await;
        let tables = "CREATE TABLE stock (on_hand INTEGER); INSERT INTO stock VALUES (100)";
        sqlx::raw_sql(tables).execute(&mut db.connect().await).await.unwrap();
        Self { db }
    }

    pub(crate) fn inbox(&self) -> Inbox<SqliteStore> {
        Inbox::new("stock", self.db.store()).unwrap().id(Selector::Header("event_id".into()))
    }

    pub(crate) fn kit(&self) -> TestInbox<SqliteStore> {
        TestInbox::new(self.inbox().each(deduct))
    }

    pub(crate) async fn on_hand(&self) -> i64 {
        let sql = "SELECT on_hand FROM stock";
        sqlx::query_scalar(sql).fetch_one(&mut self.db.connect().await).await.unwrap()
    }
}

/// Takes as many bolts as the payload says, and tells others.
pub(crate) async fn deduct(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    let qty: i64 = message.json()?;
    let sql = "UPDATE stock SET on_hand = on_hand - ?1 WHERE on_hand >= ?1";
    if sqlx::query(sql).bind(qty).execute(&mut *tx).await?.rows_affected() == 0 {
        return Err(reject(format!("there are no {qty} bolts")));
    }
    tx.emit(Event::to("stock.changed").key("bolt").json(&json!({"taken": qty}))?).await?;
    Ok(())
}

/// What an assertion says when it fails.
pub(crate) async fn failure(check: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(check).catch_unwind().await.expect_err("the assertion should fail");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned(),
    }
}
