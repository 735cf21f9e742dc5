//! A multi-tenant shop on SQLite and an in-process broker: `cargo run -p example-stock`. With the URL of an empty PostgreSQL
//! database, `cargo run -p example-stock -- postgres://…`, each tenant has a schema of its own.
//!
//! - The tenant comes from a header: two shops may use the same order number.
//! - Two consumers read one topic, each with its own receipts: `stock` deducts, `ledger` writes the books.
//! - The id is the business key (the order number), so an order that a customer submitted twice is applied once even though
//!   the two messages are different ones to the broker.

mod schema_per_tenant;
#[cfg(test)]
mod tests;

use std::time::Duration;

use oncebox::Selector;
use oncebox::kafka::Kafka;
use oncebox::sqlite::SqliteStore;
use oncebox::{Inbox, Message, reject};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use sqlx::{Connection, SqliteConnection};

const TABLES: &str = "
    CREATE TABLE stock (tenant TEXT, sku TEXT, on_hand INTEGER, PRIMARY KEY (tenant, sku));
    CREATE TABLE ledger (tenant TEXT, order_id TEXT, sku TEXT, qty INTEGER);
    INSERT INTO stock VALUES ('acme', 'bolt', 100), ('zenith', 'bolt', 100);";

#[derive(serde::Deserialize)]
struct Order {
    sku: String,
    qty: i64,
}

/// Takes the goods from the shelf of the tenant's own warehouse.
async fn deduct(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    let order: Order = message.json()?;
    let taken =
        sqlx::query("UPDATE stock SET on_hand = on_hand - ? WHERE tenant = ? AND sku = ? AND on_hand >= ?")
            .bind(order.qty)
            .bind(message.tenant().as_str())
            .bind(&order.sku)
            .bind(order.qty)
            .execute(tx)
            .await?;
    if taken.rows_affected() == 0 {
        return Err(reject(format!("{} has no {} x {}", message.tenant(), order.qty, order.sku)));
    }
    Ok(())
}

/// Writes the books. A consumer of its own: if it is down, stock still moves.
async fn book(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    let order: Order = message.json()?;
    sqlx::query("INSERT INTO ledger (tenant, order_id, sku, qty) VALUES (?, ?, ?, ?)")
        .bind(message.tenant().as_str())
        .bind(message.id().as_str())
        .bind(order.sku)
        .bind(order.qty)
        .execute(tx)
        .await?;
    Ok(())
}

/// Both consumers know an order by its number, and the shop by a header.
fn inbox(consumer: &str, store: &SqliteStore) -> oncebox::Result<Inbox<SqliteStore>> {
    let inbox = Inbox::new(consumer, store.clone())?;
    Ok(inbox.id(Selector::Json("/order".into())).tenant(Selector::Header("tenant".into())))
}

#[tokio::main]
async fn main() -> oncebox::Result {
    match std::env::args().nth(1) {
        Some(url) => schema_per_tenant::run(&url).await,
        None => one_table_for_all().await,
    }
}

async fn one_table_for_all() -> oncebox::Result {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("shop.sqlite").display());
    let store = SqliteStore::connect(&url).await?;
    store.migrate().await?;
    let mut shop = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql(TABLES).execute(&mut shop).await?;

    let broker = MockCluster::new(1)?;
    broker.create_topic("orders", 2, 1)?;
    produce(&broker.bootstrap_servers())?;

    let kafka = Kafka::brokers(broker.bootstrap_servers());
    // A service would wait for a signal.
    let shutdown = || all_received(&url);
    let (stock, ledger) = tokio::join!(
        inbox("stock", &store)?.each(deduct).run(kafka.source(["orders"]), shutdown()),
        inbox("ledger", &store)?.each(book).run(kafka.source(["orders"]), shutdown()),
    );
    stock.and(ledger)?;

    let on_hand: Vec<(String, i64)> =
        sqlx::query_as("SELECT tenant, on_hand FROM stock ORDER BY tenant").fetch_all(&mut shop).await?;
    let booked: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM ledger").fetch_one(&mut shop).await?;
    let dead: Vec<String> =
        sqlx::query_scalar("SELECT error FROM oncebox_dead ORDER BY consumer").fetch_all(&mut shop).await?;
    println!("on hand {on_hand:?}, {booked} orders booked, dead letters {dead:?}");
    assert_eq!(on_hand, [("acme".to_owned(), 93), ("zenith".to_owned(), 99)]);
    assert_eq!(booked, 4);
    assert_eq!(dead, ["acme has no 500 x bolt"]);
    Ok(())
}

/// Four different orders, two consumers: eight receipts.
async fn all_received(url: &str) {
    let Ok(mut shop) = SqliteConnection::connect(url).await else { return };
    for _ in 0..600 {
        let receipts: Result<i64, _> =
            sqlx::query_scalar("SELECT COUNT(*) FROM oncebox_inbox").fetch_one(&mut shop).await;
        if receipts.is_ok_and(|receipts| receipts == 8) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Orders as a web shop sends them: one is submitted twice, one is published twice, one asks for too much.
fn produce(servers: &str) -> oncebox::Result {
    let producer: ThreadedProducer<DefaultProducerContext> =
        ClientConfig::new().set("bootstrap.servers", servers).create()?;
    for (tenant, order, qty) in [
        ("acme", "1001", 5),
        ("acme", "1001", 5),   // the customer clicked twice
        ("zenith", "1001", 1), // another shop, the same number
        ("acme", "1002", 2),
        ("acme", "1002", 2), // the relay published twice
        ("acme", "1003", 500),
    ] {
        let payload = serde_json::json!({"order": order, "sku": "bolt", "qty": qty}).to_string();
        let headers = OwnedHeaders::new().insert(Header { key: "tenant", value: Some(tenant) });
        let record = BaseRecord::to("orders").key(tenant).payload(&payload).headers(headers);
        producer.send(record).map_err(|(e, _)| e)?;
    }
    Ok(producer.flush(Duration::from_secs(10))?)
}
