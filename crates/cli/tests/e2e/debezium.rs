//! What Debezium's outbox event router publishes from our outbox, and what the inbox makes of it.
//!
//! The records have exactly the form that Debezium 3.6.2 wrote to Kafka 4.3.1 from `oncebox_outbox`, with the configuration in
//! docs/guides/debezium.md: the names, the order and the bytes of the headers were recorded there.

use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::topic::Odd;
use crate::support::world::World;

/// An event as it lay in the outbox.
#[derive(Debug, Clone, Copy)]
struct Event {
    id: &'static str,
    key: Option<&'static [u8]>,
    payload: Option<&'static [u8]>,
    causation_id: Option<&'static [u8]>,
    tenant: Option<&'static [u8]>,
    headers: &'static [u8],
}

const JSON: &[u8] = br#"{"content-type":"application/json"}"#;

/// The orders that were recorded; the second was caused by a message, the rest by nobody.
const ORDERS: [Event; 6] = [
    order("01a1e1d1-d170-78b3-a3a0-888ab48a98af", b"sku-0", br#"{"sku":"sku-0","qty":1,"seq":1}"#),
    Event {
        causation_id: Some(b"order-17"),
        tenant: Some(b"north"),
        headers:
            br#"{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","content-type":"application/json"}"#,
        ..order("01a1e1d2-703c-766e-a963-6f5cd28cbf19", b"sku-1", br#"{"sku":"sku-1","qty":2,"seq":1}"#)
    },
    order("01a1e1cf-9d5c-74a7-a247-297cf3d12cda", b"sku-1", br#"{"sku":"sku-1","qty":3,"seq":2}"#),
    order("01a1e1d3-b35b-7427-817a-39d7d1e5d4e4", b"sku-3", br#"{"sku":"sku-3","qty":1,"seq":1}"#),
    order("01a1e1d3-b39c-7ab2-8b6d-d64efa24e74f", b"sku-1", br#"{"sku":"sku-1","qty":1,"seq":3}"#),
    order("01a1e1d4-5342-7fa6-a182-8e00629dc25b", b"sku-3", br#"{"sku":"sku-3","qty":1,"seq":2}"#),
];

/// Events that are not orders: a tombstone, bytes without a key, an empty payload under a key that is not text.
const ODD: [Event; 3] = [
    Event { payload: None, headers: b"{}", ..order("01a1e1d2-7195-7a28-85a6-d238e70fc47a", b"sku-2", b"") },
    Event {
        key: None,
        headers: b"{}",
        ..order("01a1e1d2-71a2-73dd-b0dd-f19e093d4f23", b"", b"\x00\xff\xfe\x0a")
    },
    Event { headers: b"{}", ..order("01a1e1d2-71a8-733b-9cdd-c30470b7b816", b"\x00\xff\x80", b"") },
];

const fn order(id: &'static str, key: &'static [u8], payload: &'static [u8]) -> Event {
    Event { id, key: Some(key), payload: Some(payload), causation_id: None, tenant: None, headers: JSON }
}

/// Publishes as Debezium does. A column that is NULL becomes a header without a value.
fn publish(world: &World, events: &[Event]) {
    for event in events {
        let headers = [
            ("id", Some(event.id.as_bytes())),
            ("oncebox-id", Some(event.id.as_bytes())),
            ("oncebox-causation-id", event.causation_id),
            ("tenant", event.tenant),
            ("oncebox-headers", Some(event.headers)),
        ];
        world.topic.send_odd(&Odd {
            key: event.key,
            payload: event.payload,
            headers: &headers,
            ..Odd::default()
        });
    }
}

/// A connector that ends before it has written down how far it is publishes the last events again; one that has lost its
/// offsets publishes whatever is still in the table.
#[tokio::test(flavor = "multi_thread")]
async fn what_debezium_publishes_again_is_applied_once() {
    for kind in Kind::WITH_SQL {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("id", "\"header:id\""));
        publish(&world, &ORDERS);
        publish(&world, &ORDERS[4..]);
        let daemon = world.start();
        world.caught_up().await;
        assert_eq!(world.duplicates().await, 2);
        publish(&world, &ORDERS);
        world.caught_up().await;
        assert_eq!(world.duplicates().await, 8, "{kind:?}");

        let applied = world.db.texts("SELECT message_id FROM ledger ORDER BY n").await;
        assert_eq!(applied, ORDERS.map(|event| event.id), "each once, in order, by its bare id: {kind:?}");
        world.is_consistent().await;
        world.receipts_are_effects().await;
        world.kafka_is_not_ahead().await;
        assert_eq!(world.dead("error").await, Vec::<String>::new());
        daemon.stop();
    }
}

/// Payloads arrive as they lay in the outbox, and the columns that Debezium was told to add can be read as headers. Those
/// that it adds on its own, unless `extended.headers.enabled` is false, do not matter.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_tombstones_and_further_columns() {
    let mut world = World::new(Kind::Postgres, 1).await;
    world
        .db
        .execute("CREATE TABLE seen (n BIGSERIAL, message_id TEXT, payload BYTEA, cause TEXT, trace TEXT)")
        .await;
    let insert = "\"INSERT INTO seen (message_id, payload, cause, trace) VALUES (:id, :payload, \
                  :headers->>'oncebox-causation-id', (:headers->>'oncebox-headers')::json->>'traceparent')\"";
    let inbox = Inbox::new(&world.consumer, &world.topic.name, vec![insert.to_owned()]);
    world.config.inboxes = vec![inbox.set("id", "\"header:id\"").set("payload", "\"bytes\"")];
    publish(&world, &ODD);
    publish(&world, &ORDERS[1..2]);
    let with_context = [
        ("__debezium.context.connectorLogicalName", Some(b"dbz".as_slice())),
        ("__debezium.context.taskId", Some(b"0")),
        ("__debezium.context.connectorName", Some(b"postgresql")),
        ("__debezium.context.runId", Some(b"01a1e1c2-dd25-71cc-b343-7150d90061a0")),
        ("id", Some(b"01890a5d-ac96-774b-bcce-b302099a8001")),
    ];
    world.topic.send_odd(&Odd {
        key: Some(b"sku-0"),
        payload: Some(b"p"),
        headers: &with_context,
        ..Odd::default()
    });
    publish(&world, &ODD);

    let daemon = world.start();
    world.caught_up().await;
    assert_eq!(world.duplicates().await, 3);
    let seen = world
        .db
        .texts(
            "SELECT message_id || ' ' || COALESCE(encode(payload, 'escape'), 'no payload') || ' ' || \
             COALESCE(cause || ' ' || trace, 'no cause') FROM seen ORDER BY n",
        )
        .await;
    let expected = [
        "01a1e1d2-7195-7a28-85a6-d238e70fc47a no payload no cause",
        "01a1e1d2-71a2-73dd-b0dd-f19e093d4f23 \\000\\377\\376\n no cause",
        "01a1e1d2-71a8-733b-9cdd-c30470b7b816  no cause",
        "01a1e1d2-703c-766e-a963-6f5cd28cbf19 {\"sku\":\"sku-1\",\"qty\":2,\"seq\":1} order-17 \
         00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "01890a5d-ac96-774b-bcce-b302099a8001 p no cause",
    ];
    assert_eq!(seen, expected);
    daemon.stop();
}

/// Both give the id in the header `oncebox-id`: an inbox that reads that one may see some events from our relay and some, or
/// the same, from Debezium.
#[tokio::test(flavor = "multi_thread")]
async fn from_the_relay_to_debezium_and_back() {
    let mut world = World::new(Kind::Postgres, 1).await;
    world.inbox(|inbox| inbox.set("id", "\"header:oncebox-id\""));
    world.config.outbox.insert("relay".to_owned(), "true".to_owned());
    let daemon = world.start();
    daemon.ready().await;
    for event in &ORDERS[..4] {
        let (id, topic) = (event.id, &world.topic.name);
        let [key, payload] =
            [event.key, event.payload].map(|bytes| String::from_utf8_lossy(bytes.expect("an order")));
        let insert = "INSERT INTO oncebox_outbox (id, topic, key, payload) VALUES";
        world.db.execute(&format!("{insert} ('{id}', '{topic}', '{key}', '{payload}')")).await;
    }
    world.effects_reach(4).await;
    // It does not know what the relay has published.
    publish(&world, &ORDERS);
    eventually("all events are applied", async || world.effects().await == 6).await;
    world.caught_up().await;
    assert_eq!(world.duplicates().await, 4);
    let mut applied = world.db.texts("SELECT message_id FROM ledger").await;
    let mut expected = ORDERS.map(|event| event.id);
    applied.sort_unstable();
    expected.sort_unstable();
    assert_eq!(applied, expected);
    world.is_consistent().await;
    daemon.stop();
}
