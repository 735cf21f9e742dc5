//! The same with oncebox: receipt, order, event and position are one transaction.

use std::time::Duration;

use oncebox::kafka::Kafka;
use oncebox::mongodb::{MongoStore, MongoTx};
use oncebox::store::Status;
use oncebox::{Emit, Event, Inbox, Relay, Selector};

use crate::crash;
use crate::order::{COMMANDS, CREATED, Order};

/// Makes the order and says so.
async fn place(tx: &mut MongoTx, order: Order) -> oncebox::Result {
    tx.collection::<Order>("orders").insert_one(&order).await?;
    crash::in_the_middle();
    tx.emit(Event::to(CREATED).key(&order.order).json(&order)?).await?;
    Ok(())
}

/// Runs until the whole topic is settled, up to its `end`, and no event waits. A real service would wait for a signal.
pub(crate) async fn run(url: &str, brokers: &str, end: i64) -> oncebox::Result {
    let store = MongoStore::connect(url).await?;
    store.migrate().await?;
    // A consumer that died is replaced after six seconds instead of 45.
    let kafka = Kafka::brokers(brokers).property("session.timeout.ms", "6000");
    let inbox = Inbox::new("orders", store.clone())?.id(Selector::Json("/order".into()));
    let orders = inbox.each_json(place).run(kafka.source([COMMANDS]), settled(&store, end));
    // A relay that died is replaced after one second instead of ten.
    let relay = Relay::new(store.clone()).sink(kafka.sink()).lease(Duration::from_secs(1));
    let (orders, relayed) = tokio::join!(orders, relay.run(published(&store, end)));
    Ok(orders.and(relayed)?)
}

/// Everything up to the end of the topic is settled.
async fn settled(store: &MongoStore, end: i64) {
    while !store
        .status(1)
        .await
        .is_ok_and(|status| status.positions.iter().any(|p| p.next_offset >= Some(end)))
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// And every event is out.
async fn published(store: &MongoStore, end: i64) {
    settled(store, end).await;
    while !store.status(1).await.is_ok_and(|status| status.outbox.pending == 0) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
