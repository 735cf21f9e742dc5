//! Each tenant has a schema of its own; oncebox's tables are there once, for all.

use std::time::Duration;

use oncebox::Selector;
use oncebox::kafka::Kafka;
use oncebox::postgres::PgStore;
use oncebox::{Emit, Event, Inbox, Message, Worker, reject};
use rdkafka::mocking::MockCluster;
use sqlx::{Connection, PgConnection};

use crate::{Order, produce};

#[cfg(all(test, feature = "services"))]
mod tests;

/// Goes to the tenant's schema and takes the goods from the only shelf it sees there.
async fn deduct(tx: &mut PgConnection, message: &Message) -> oncebox::Result {
    let order: Order = message.json()?;
    // For this transaction only. The next message sets its own.
    sqlx::query("SELECT set_config('search_path', quote_ident($1), true)")
        .bind(message.tenant().as_str())
        .execute(&mut *tx)
        .await?;
    let taken = sqlx::query("UPDATE stock SET on_hand = on_hand - $1 WHERE sku = $2 AND on_hand >= $1")
        .bind(order.qty)
        .bind(&order.sku)
        .execute(&mut *tx)
        .await?;
    if taken.rows_affected() == 0 {
        return Err(reject(format!("{} has no {} x {}", message.tenant(), order.qty, order.sku)));
    }
    // The outbox is oncebox's, wherever the handler is.
    let changed = serde_json::json!({"tenant": message.tenant().as_str(), "sku": order.sku});
    tx.emit(Event::to("stock.changed").key(&order.sku).json(&changed)?).await?;
    Ok(())
}

/// A schema with a shelf for each tenant.
async fn tables(shop: &mut PgConnection) -> oncebox::Result {
    for tenant in ["acme", "zenith"] {
        let schema = format!(
            "CREATE SCHEMA {tenant};
             CREATE TABLE {tenant}.stock (sku text PRIMARY KEY, on_hand bigint NOT NULL);
             INSERT INTO {tenant}.stock VALUES ('bolt', 100);"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(schema)).execute(&mut *shop).await?;
    }
    Ok(())
}

fn inbox(store: PgStore) -> oncebox::Result<Worker<PgStore>> {
    let inbox = Inbox::new("stock", store)?;
    let inbox = inbox.id(Selector::Json("/order".into())).tenant(Selector::Header("tenant".into()));
    Ok(inbox.each(deduct))
}

pub(crate) async fn run(url: &str) -> oncebox::Result {
    let store = PgStore::connect(url).await?;
    store.migrate().await?;
    let mut shop = PgConnection::connect(url).await?;
    tables(&mut shop).await?;

    let broker = MockCluster::new(1)?;
    broker.create_topic("orders", 2, 1)?;
    produce(&broker.bootstrap_servers())?;
    let kafka = Kafka::brokers(broker.bootstrap_servers());
    inbox(store)?.run(kafka.source(["orders"]), all_received(url)).await?;

    let on_hand: (i64, i64) = sqlx::query_as("SELECT a.on_hand, z.on_hand FROM acme.stock a, zenith.stock z")
        .fetch_one(&mut shop)
        .await?;
    let events: i64 = sqlx::query_scalar("SELECT count(*) FROM oncebox_outbox").fetch_one(&mut shop).await?;
    println!("on hand: acme {}, zenith {}; {events} events", on_hand.0, on_hand.1);
    assert_eq!((on_hand, events), ((93, 99), 3));
    Ok(())
}

/// Four different orders, one of them too large: four receipts.
async fn all_received(url: &str) {
    let Ok(mut shop) = PgConnection::connect(url).await else { return };
    for _ in 0..600 {
        let receipts: Result<i64, _> =
            sqlx::query_scalar("SELECT count(*) FROM oncebox_inbox").fetch_one(&mut shop).await;
        if receipts.is_ok_and(|receipts| receipts == 4) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
