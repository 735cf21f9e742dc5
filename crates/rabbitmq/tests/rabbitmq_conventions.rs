//! Messages as the libraries of others publish them: which selector finds their id.

#![allow(clippy::unwrap_used)]

mod support;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use oncebox::store::{DeadFilter, DeadLetters};
use oncebox_core::outbox::Sink;
use oncebox_rabbitmq::{Rabbitmq, check_selector};
use support::broker::{Broker, text};
use support::events::{outgoing, stored};
use support::inbox::Scene;
use support::{eventually, unique, url};

fn table(headers: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        table.insert((*name).into(), value.clone());
    }
    table
}

struct Fixture {
    properties: BasicProperties,
    body: &'static str,
    /// Selectors, and what each of them finds.
    finds: &'static [(&'static str, &'static str)],
}

/// With its envelope, which is the default.
fn mass_transit() -> Fixture {
    let headers = table(&[
        ("Content-Type", text("application/vnd.masstransit+json")),
        ("MT-Activity-Id", text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
        ("publishId", text("5")),
    ]);
    Fixture {
        properties: BasicProperties::default()
            .with_message_id("82d30000-5d21-0015-4a10-08d8d959e63c".into())
            .with_correlation_id("e1fab15c-e7a0-47f3-ab06-462433dd65d7".into())
            .with_content_type("application/vnd.masstransit+json".into())
            .with_delivery_mode(2)
            .with_headers(headers),
        body: r#"{
            "messageId": "82d30000-5d21-0015-4a10-08d8d959e63c",
            "conversationId": "82d30000-5d21-0015-770c-08d8d959e63c",
            "sourceAddress": "rabbitmq://localhost/api?temporary=true",
            "destinationAddress": "rabbitmq://localhost/Sample.Contracts:SubmitOrder",
            "messageType": ["urn:message:Sample.Contracts:SubmitOrder"],
            "message": {"orderId": "e1fab15c-e7a0-47f3-ab06-462433dd65d7", "customerNumber": "12345"},
            "sentTime": "2026-02-25T06:52:21.095272Z",
            "headers": {},
            "host": {"machineName": "api-1", "processName": "Sample.Api", "massTransitVersion": "8.2.5.0"}
        }"#,
        finds: &[
            ("property:message_id", "82d30000-5d21-0015-4a10-08d8d959e63c"),
            ("json:/messageId", "82d30000-5d21-0015-4a10-08d8d959e63c"),
            ("json:/message/orderId", "e1fab15c-e7a0-47f3-ab06-462433dd65d7"),
        ],
    }
}

fn nservicebus() -> Fixture {
    let id = "b6a1e1f0-3b2c-4f0e-9d5b-b0d100a1b2c3";
    let headers = table(&[
        ("NServiceBus.MessageId", text(id)),
        ("NServiceBus.MessageIntent", text("Publish")),
        ("NServiceBus.ConversationId", text("8f1b0d6e-6f0e-4f6e-9c39-b0d100a1b2c4")),
        ("NServiceBus.CorrelationId", text(id)),
        ("NServiceBus.OriginatingEndpoint", text("Shop")),
        ("NServiceBus.ContentType", text("application/json")),
        ("NServiceBus.EnclosedMessageTypes", text("Shop.OrderPlaced, Shop.Messages, Version=1.0.0.0")),
        ("NServiceBus.TimeSent", text("2026-02-25 06:52:21:095272 Z")),
        ("NServiceBus.Transport.RabbitMQ.ConfirmationId", text("17")),
    ]);
    Fixture {
        properties: BasicProperties::default()
            .with_message_id(id.into())
            .with_correlation_id(id.into())
            .with_type("Shop.OrderPlaced".into())
            .with_content_type("application/json".into())
            .with_delivery_mode(2)
            .with_headers(headers),
        body: r#"{"OrderId":"4711"}"#,
        finds: &[
            ("property:message_id", "b6a1e1f0-3b2c-4f0e-9d5b-b0d100a1b2c3"),
            ("header:NServiceBus.MessageId", "b6a1e1f0-3b2c-4f0e-9d5b-b0d100a1b2c3"),
            ("property:type", "Shop.OrderPlaced"),
        ],
    }
}

/// Of a converter with `setCreateMessageIds(true)`.
fn spring() -> Fixture {
    Fixture {
        properties: BasicProperties::default()
            .with_message_id("0b0a6b0e-9f63-4d0b-8f5a-2f3d7f0a1c11".into())
            .with_content_type("application/json".into())
            .with_content_encoding("UTF-8".into())
            .with_delivery_mode(2)
            .with_priority(0)
            .with_headers(table(&[("__TypeId__", text("com.example.shop.OrderPlaced"))])),
        body: r#"{"orderId":4711}"#,
        finds: &[
            ("property:message_id", "0b0a6b0e-9f63-4d0b-8f5a-2f3d7f0a1c11"),
            ("json:/orderId", "4711"),
            ("header:__TypeId__", "com.example.shop.OrderPlaced"),
        ],
    }
}

fn cap() -> Fixture {
    let headers = table(&[
        ("cap-msg-id", text("5713254125346496512")),
        ("cap-corr-id", text("5713254125346496512")),
        ("cap-corr-seq", text("0")),
        ("cap-msg-name", text("shop.order.placed")),
        ("cap-msg-type", text("OrderPlaced")),
        ("cap-senttime", text("02/25/2026 06:52:21 +00:00")),
    ]);
    Fixture {
        properties: BasicProperties::default().with_delivery_mode(2).with_headers(headers),
        body: r#"{"OrderId":4711}"#,
        finds: &[("header:cap-msg-id", "5713254125346496512")],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ids_of_other_libraries_are_found() {
    let broker = Broker::connect(&url()).await;
    for fixture in [mass_transit(), nservicebus(), spring(), cap()] {
        for (selector, id) in fixture.finds {
            let (scene, queue) = (Scene::new().await, unique("conventions"));
            broker.queue(&queue, &[]).await;
            // Twice, as a publisher that got no confirmation does.
            for _ in 0..2 {
                broker.put(&queue, fixture.body.as_bytes(), fixture.properties.clone()).await;
            }
            let selector = selector.parse().unwrap();
            check_selector(&selector).unwrap();
            let source = Rabbitmq::nodes(url()).unwrap().source(&queue);
            let running = scene.start_worker(scene.worker_of(scene.inbox().id(selector)), source.clone());
            scene.effects_become(1).await;
            running.stop().await;
            assert_eq!(scene.effects().await, [*id]);
            broker.delete_queue(&queue).await;
        }
    }
}

/// Spring sets no id unless it is told to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_without_an_id_is_kept_as_a_dead_letter() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("no-id"));
    broker.queue(&queue, &[]).await;
    let headers = table(&[("__TypeId__", text("com.example.shop.OrderPlaced"))]);
    broker.put(&queue, br#"{"orderId":4711}"#, BasicProperties::default().with_headers(headers)).await;
    let source = Rabbitmq::nodes(url()).unwrap().source(&queue);
    let running = scene.start(source.clone());
    let all = DeadFilter { limit: 10, ..DeadFilter::default() };
    let letters = async || scene.store.dead_letters(&all).await.unwrap();
    eventually("it is parked", async || letters().await.len() == 1).await;
    scene.drain(running, &broker, &source).await;
    let letter = letters().await.remove(0);
    assert!(letter.error.contains("the message has no id: no property `message_id`"), "{}", letter.error);
    assert!(scene.effects().await.is_empty());
}

/// What the sink publishes, the source reads: by its property, its header or as a CloudEvent, and with its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_sink_publishes_is_read_with_its_id_and_its_key() {
    let broker = Broker::connect(&url()).await;
    let id = "00000000-0000-0000-0000-000000000007";
    let cloud_event = format!("test {id}");
    for (selector, found) in
        [("property:message_id", id), ("header:oncebox-id", id), ("cloudevents", &cloud_event)]
    {
        let (scene, name) = (Scene::new().await, unique("round-trip"));
        broker.exchange_with_queue(&name).await;
        let rabbitmq = Rabbitmq::nodes(url()).unwrap();
        let event = outgoing(stored("stock", 7, Some("A-1"), Some(b"{}".to_vec())));
        rabbitmq.sink(&name).unwrap().deliver(&[event]).await.unwrap();
        let worker = scene.worker_of(scene.inbox().id(selector.parse().unwrap()));
        let running = scene.start_worker(worker, rabbitmq.source(&name));
        scene.effects_become(1).await;
        running.stop().await;
        let expected = (found.to_owned(), Some("A-1".to_owned()), Some("{}".to_owned()), false);
        assert_eq!(scene.details().await, [expected]);
    }
}
