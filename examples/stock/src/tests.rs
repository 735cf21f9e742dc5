//! The handlers, without a broker.

use oncebox::testing::{TemporarySqlite, TestInbox, TestMessage, message, message_without_id};
use serde_json::json;

use crate::{TABLES, book, deduct, inbox};

async fn shop() -> TemporarySqlite {
    let db = TemporarySqlite::new().await;
    sqlx::raw_sql(TABLES).execute(&mut db.connect().await).await.expect("the tables");
    db
}

async fn number(db: &TemporarySqlite, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&mut db.connect().await).await.expect(sql)
}

fn order(tenant: &str, number: &str, qty: i64) -> TestMessage {
    message(number).header("tenant", tenant).json(&json!({"order": number, "sku": "bolt", "qty": qty}))
}

#[tokio::test]
async fn an_order_takes_its_goods_once() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(inbox("stock", &db.store())?.each(deduct));
    let on_hand = async || number(&db, "SELECT on_hand FROM stock WHERE tenant = 'acme'").await;
    kit.assert_changes_once(&order("acme", "1001", 5), on_hand).await;
    assert_eq!(on_hand().await, 95);
    Ok(())
}

#[tokio::test]
async fn the_same_number_of_another_shop_is_another_order() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(inbox("stock", &db.store())?.each(deduct));
    kit.deliver(&order("acme", "1001", 5)).await.assert_applied();
    kit.deliver(&order("zenith", "1001", 1)).await.assert_applied();
    kit.deliver(&order("acme", "1001", 5)).await.assert_duplicate();
    assert_eq!(number(&db, "SELECT sum(on_hand) FROM stock").await, 194);
    Ok(())
}

#[tokio::test]
async fn an_order_that_asks_for_too_much_hurts_nobody_else() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(inbox("stock", &db.store())?.each(deduct));
    let orders = [order("acme", "1001", 5), order("acme", "1002", 500), order("acme", "1003", 5)];
    let delivered = kit.deliver_all(&orders).await;
    delivered[0].assert_applied();
    delivered[1].assert_rejected("acme has no 500 x bolt");
    delivered[2].assert_applied();
    assert_eq!(number(&db, "SELECT sum(on_hand) FROM stock").await, 190);
    Ok(())
}

#[tokio::test]
async fn an_order_without_a_number_or_a_shop_is_parked() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(inbox("stock", &db.store())?.each(deduct));
    kit.deliver(&message_without_id().header("tenant", "acme").json(&json!({"qty": 1})))
        .await
        .assert_parked("the payload has nothing at /order");
    kit.deliver(&message("1001").json(&json!({"order": "1001"}))).await.assert_parked("no header `tenant`");
    Ok(())
}

#[tokio::test]
async fn the_books_are_a_consumer_of_their_own() -> oncebox::Result {
    let db = shop().await;
    let stock = TestInbox::new(inbox("stock", &db.store())?.each(deduct));
    let ledger = TestInbox::new(inbox("ledger", &db.store())?.each(book));
    stock.deliver(&order("acme", "1001", 5)).await.assert_applied();
    ledger.crash_after_commit(&order("acme", "1001", 5)).await.assert_applied_once();
    assert_eq!(number(&db, "SELECT count(*) FROM ledger").await, 1);
    Ok(())
}
