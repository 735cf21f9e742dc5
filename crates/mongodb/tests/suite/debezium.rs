//! What Debezium's outbox event router for MongoDB publishes, and what the inbox makes of it.
//!
//! The record has the form that Debezium's documentation shows for its default fields: the topic is `outbox.event.` and the type
//! of the aggregate, the key is the aggregate's id, the header `id` is the `_id` of the document, and the value is the payload.

use mongodb::bson::{Document, doc};
use oncebox_core::inbox::{Inbox, Selector};
use oncebox_core::message::Message;
use oncebox_mongodb::MongoTx;
use oncebox_testkit::{TestInbox, message_without_id};

use super::support::database;

async fn place(tx: &mut MongoTx, message: &Message) -> oncebox_core::error::Result<()> {
    // Ids come as Extended JSON, which is how BSON reads them.
    let mut order: Document = message.json()?;
    order.insert("event", message.id().as_str());
    tx.collection::<Document>("orders").insert_one(order).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_router_for_mongodb_publishes_is_applied_once() {
    let temporary = database().await;
    let inbox = Inbox::new("billing", temporary.store()).unwrap().id(Selector::Header("id".into()));
    let kit = TestInbox::new(inbox.each(place));
    let published = message_without_id()
        .topic("outbox.event.order")
        .key("b2730779e1f596e275826f08")
        .header("id", "596e275826f08b2730779e1f")
        .bytes(r#"{"_id": {"$oid": "da8d6de63b7745ff8f4457db"}, "lineItems": [{"id": 1, "totalPrice": 39.98}], "customerId": 123}"#);
    kit.deliver_twice(&published).await.assert_applied_once();
    let orders = temporary.database().await.collection::<Document>("orders");
    let order = orders.find_one(doc! { "event": "596e275826f08b2730779e1f" }).await.unwrap().unwrap();
    assert_eq!(order.get_object_id("_id").unwrap().to_hex(), "da8d6de63b7745ff8f4457db");
    assert_eq!(orders.count_documents(doc! {}).await.unwrap(), 1);
}
