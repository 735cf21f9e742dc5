//! Deducts stock for every message, once.

use oncebox::kafka::Kafka;
use oncebox::postgres::PgStore;
use oncebox::{Admin, Inbox, selector::Selector};
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct StockUpdate {
    sku: String,
    qty: i32,
}

async fn deduct(tx: &mut PgConnection, update: StockUpdate) -> oncebox::Result {
    sqlx::query("UPDATE stock SET on_hand = on_hand - $1 WHERE sku = $2")
        .bind(update.qty)
        .bind(&update.sku)
        .execute(tx)
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> oncebox::Result {
    let store = PgStore::connect("postgres://erp@localhost/erp").await?;
    store.migrate().await?;
    Inbox::new("stock", store)?
        .id(Selector::Header("event_id".into()))
        .typed(deduct)
        .run(Kafka::brokers("localhost:9092").source(["stock.updates"]), async {
            tokio::signal::ctrl_c().await.ok();
        })
        .await
}
