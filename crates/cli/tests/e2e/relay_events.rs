//! What is published, and what it looks like on the other side.

use sqlx::types::Uuid;

use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::murmur2::partition_of;
use crate::support::on_each_server;
use crate::support::orders::{Order, orders};
use crate::support::records::Record;
use crate::support::topic::Odd;
use crate::support::world::World;

on_each_server!(what_was_rolled_back_is_never_published);
on_each_server!(sql: a_transaction_that_commits_late);

/// Several applications at once, each of which rolls back every other transaction.
async fn what_was_rolled_back_is_never_published(kind: Kind) {
    let world = World::with_relay_on(kind, 3).await;
    let daemon = world.start();
    let mut applications = tokio::task::JoinSet::new();
    for name in ["a", "b", "c", "d"] {
        let mut writer = world.writer(name, 5).await;
        applications.spawn(async move {
            for turn in 1..=60 {
                writer.roll_back(turn % 5 + 1).await;
                writer.write(turn % 7 + 1).await;
            }
            writer.written
        });
    }
    let mut written = Vec::new();
    while let Some(application) = applications.join_next().await {
        written.extend(application.expect("it ends well"));
    }
    world.outbox_empties().await;
    daemon.stop();
    assert_eq!(world.has_published(&written), 0, "copies");
}

/// A transaction that stays open has taken a lower number than many that commit before it: nobody waits for it, and its
/// event comes when it commits.
async fn a_transaction_that_commits_late(kind: Kind) {
    let world = World::with_relay_on(kind, 3).await;
    let topic = &world.topic.name;
    let daemon = world.start();
    let mut writer = world.writer("w", 12).await;
    writer.write(12).await;
    let emit = format!("oncebox_emit('{topic}', 'late', '{{\"late\": true}}'");
    let emit = match kind {
        Kind::Mariadb | Kind::Mysql => format!("CALL {emit}, NULL, @id)"),
        _ => format!("SELECT {emit})"),
    };
    let late = world.db.begin(&emit).await;
    for _ in 0..20 {
        writer.write(12).await;
    }
    world.outbox_empties().await;
    assert_eq!(world.has_published(&writer.written), 0, "copies");
    late.commit().await;
    world.outbox_empties().await;
    writer.write(12).await;
    world.outbox_empties().await;
    daemon.stop();
    let (of_late, of_others): (Vec<Record>, Vec<Record>) =
        world.topic.read().into_iter().partition(|record| record.key.as_deref() == Some("late"));
    assert_eq!(of_late.len(), 1);
    assert_eq!(of_late[0].payload.as_deref(), Some("{\"late\": true}"));
    assert_eq!(of_others.len(), writer.written.len());
}

/// From message to event to message: who caused what, in which trace, at which place.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_tells_where_it_comes_from() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let out = World::new(Kind::Postgres, 5).await;
    let mut world = World::new(Kind::Postgres, 1).await;
    world.inbox(|inbox| {
        inbox.and(&format!("\"SELECT oncebox_emit('{}', :key, :payload::json)\"", out.topic.name))
    });
    // What it reads itself, by the id that CloudEvents knows.
    let reader = Inbox::new(
        "reader",
        &out.topic.name,
        vec![
            "\"INSERT INTO ledger (consumer, message_id, sku, qty, seq) \
             VALUES ('reader', :id, :payload->>'sku', 0, (:payload->>'seq')::bigint)\""
                .to_owned(),
        ],
    );
    world.config.inboxes.push(reader.set("id", "\"cloudevents\""));
    world.outbox("relay", "true");
    world.outbox("keep", "\"1h\"");
    world.outbox("source", "\"/erp/stock\"");

    let all = orders(0..24);
    for order in &all {
        let (key, payload) = (order.key(), order.payload());
        let headers = [("event_id", Some(order.id.as_bytes())), ("traceparent", Some(TRACE.as_bytes()))];
        world.topic.send_odd(&Odd {
            key: Some(key.as_bytes()),
            payload: Some(payload.as_bytes()),
            headers: &headers,
            ..Odd::default()
        });
    }
    let daemon = world.start();
    let read = "SELECT COUNT(*) FROM ledger WHERE consumer = 'reader'";
    eventually("everything is read", async || world.db.number(read).await == 24).await;
    daemon.stop();

    let records = out.topic.read();
    assert_eq!(records.len(), all.len());
    for record in &records {
        let sequence = |order: &&Order| record.header("oncebox-causation-id") == Some(order.id.as_str());
        let order = all.iter().find(sequence).unwrap_or_else(|| panic!("no cause: {record:?}"));
        assert_eq!(record.key, Some(order.key()));
        let payload: serde_json::Value =
            serde_json::from_str(record.payload.as_deref().unwrap_or_default()).expect("JSON");
        assert_eq!(payload, serde_json::from_str::<serde_json::Value>(&order.payload()).expect("JSON"));
        assert_eq!(record.partition, partition_of(&order.key(), 5), "{record:?}");
        assert_eq!(record.header("traceparent"), Some(TRACE));
        assert_eq!(record.header("content-type"), Some("application/json"));
        for (name, value) in [
            ("ce_id", record.id()),
            ("ce_specversion", "1.0"),
            ("ce_source", "/erp/stock"),
            ("ce_type", &out.topic.name),
        ] {
            assert_eq!(record.header(name), Some(value), "{name}");
        }
        assert_eq!(Uuid::parse_str(record.id()).expect("a UUID").get_version_num(), 7);

        let of_row = format!("FROM oncebox_outbox WHERE id = '{}' AND published_at IS NOT NULL", record.id());
        let time = record.header("ce_time").unwrap_or_default();
        let told = format!("SELECT CAST(extract(epoch FROM CAST('{time}' AS timestamptz)) * 1000 AS bigint)");
        assert_eq!(record.timestamp, Some(world.db.number(&told).await), "{time}");
        // To the millisecond.
        let off =
            format!("SELECT CAST(abs(extract(epoch FROM created_at - '{time}') * 1e6) AS bigint) {of_row}");
        assert!(world.db.number(&off).await < 1000, "{time}");
        let consumer = world.db.texts(&format!("SELECT consumer {of_row}")).await;
        assert_eq!(consumer, [world.consumer.as_str()]);
        let row = format!(
            "SELECT COUNT(*) FROM ledger WHERE consumer = 'reader' AND message_id = '/erp/stock {}' AND seq = {}",
            record.id(),
            order.seq
        );
        assert_eq!(world.db.number(&row).await, 1, "the reader knows it by its source and id");
    }
}

/// Events with everything that can be written: bytes that are not text, no payload, no key, headers of their own.
#[tokio::test(flavor = "multi_thread")]
async fn odd_events_arrive_as_they_were_written() {
    let world = World::with_relay(1).await;
    let topic = &world.topic.name;
    for sql in [
        format!("SELECT oncebox_emit('{topic}', 'k', '{{\"n\": 1.50, \"t\": \"ä\"}}')"),
        format!("SELECT oncebox_emit_bytes('{topic}', NULL, NULL)"),
        format!("SELECT oncebox_emit_bytes('{topic}', '', '')"),
        format!(
            "SELECT oncebox_emit_bytes('{topic}', 'ü', 'text', \
             '[[\"a\", \"1\"], [\"a\", \"2\"], [\"ce_type\", \"own\"], [\"ce_id\", \"no\"]]')"
        ),
    ] {
        world.db.execute(&sql).await;
    }
    let daemon = world.start();
    world.outbox_empties().await;
    daemon.stop();
    let records = world.topic.read();
    let find = |key: Option<&str>| {
        let found: Vec<&Record> = records.iter().filter(|r| r.key.as_deref() == key).collect();
        assert_eq!(found.len(), 1, "{key:?}: {records:#?}");
        found[0]
    };
    assert_eq!(find(Some("k")).payload.as_deref(), Some("{\"n\": 1.50, \"t\": \"ä\"}"));
    assert_eq!(find(None).payload, None, "a tombstone");
    assert_eq!(find(Some("")).payload.as_deref(), Some(""));
    let own = find(Some("ü"));
    let twice: Vec<&str> =
        own.headers.iter().filter(|(name, _)| name == "a").map(|(_, value)| value.as_str()).collect();
    assert_eq!(twice, ["1", "2"]);
    assert_eq!(own.header("ce_type"), Some("own"));
    assert_eq!(own.headers.iter().filter(|(name, _)| name == "ce_type").count(), 1);
    assert_eq!(own.header("ce_id"), Some(own.id()), "nobody else gives out ids");
}
