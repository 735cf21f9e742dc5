//! Deducts stock for every message, once, and tells the next service about it.

use oncebox::kafka::Kafka;
use oncebox::postgres::PgStore;
use oncebox::{Emit, Event, Inbox, Relay, Selector};
use sqlx::PgConnection;

#[derive(serde::Deserialize, serde::Serialize)]
struct StockUpdate {
    sku: String,
    qty: i32,
}

async fn deduct(tx: &mut PgConnection, update: StockUpdate) -> oncebox::Result {
    sqlx::query("UPDATE stock SET on_hand = on_hand - $1 WHERE sku = $2")
        .bind(update.qty)
        .bind(&update.sku)
        .execute(&mut *tx)
        .await?;
    tx.emit(Event::to("stock.changed").key(&update.sku).json(&update)?).await?;
    Ok(())
}

async fn ctrl_c() {
    tokio::signal::ctrl_c().await.ok();
}

#[tokio::main]
async fn main() -> oncebox::Result {
    let kafka = Kafka::brokers("localhost:9092");
    let store = PgStore::connect("postgres://erp@localhost/erp").await?;
    store.migrate().await?;
    let relay = Relay::new(store.clone()).sink(kafka.sink());
    let inbox = Inbox::new("stock", store)?.id(Selector::Header("event_id".into())).each_json(deduct);
    tokio::try_join!(relay.run(ctrl_c()), inbox.run(kafka.source(["stock.updates"]), ctrl_c()))?;
    Ok(())
}
