use std::sync::Arc;

use oncebox::sqlite::SqliteStore;
use oncebox::{Inbox, Message};
use sqlx::SqliteConnection;

#[derive(serde::Deserialize)]
struct Order {}

async fn by_message(_tx: &mut SqliteConnection, _message: &Message) -> oncebox::Result {
    Ok(())
}

async fn by_payload(_tx: &mut SqliteConnection, _order: Order) -> oncebox::Result {
    Ok(())
}

async fn by_batch(_tx: &mut SqliteConnection, _batch: &[Message]) -> oncebox::Result {
    Ok(())
}

fn inbox(store: &SqliteStore) -> Inbox<SqliteStore> {
    Inbox::new("test", store.clone()).unwrap()
}

fn handlers(store: &SqliteStore) {
    inbox(store).each(by_message);
    inbox(store).each_json(by_payload);
    inbox(store).batch(by_batch);
    // A closure needs no annotation, and may own what it uses.
    let rate = Arc::new(7);
    inbox(store).each(async move |tx, message| {
        let _ = (*rate, message.id());
        sqlx::query("SELECT 1").execute(tx).await?;
        Ok(())
    });
}

fn main() {
    let _ = handlers;
}
