//! What is committed is published, once when nothing fails, in order, with its headers.

use std::time::Duration;

use oncebox::message::Record;
use oncebox::message::{MessageId, Tenant};
use oncebox::sqlite::SqliteStore;
use oncebox::store::{EventState, OutboxAdmin};
use oncebox::{Emit, Event, Message, Relay};
use sqlx::{Connection, SqliteConnection};

use crate::fixture::{Fixture, Notes, Running, eventually, sink};

#[tokio::test(flavor = "multi_thread")]
async fn committed_events_are_published_once_and_in_order() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    let keys: Vec<String> = (0..40).map(|key| format!("k{key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    fixture.emit("orders", &keys, 0..20).await;
    let relay = Running::start(fixture.relay().sink(sink(&notes, |_| Ok(()))));
    fixture.emit("orders", &keys, 20..40).await;
    fixture.drained().await;
    relay.stop().await;
    assert_eq!(notes.all().len(), 40 * 40, "no copies when nothing fails");
    let numbers = notes.first_numbers();
    assert_eq!(numbers.len(), 40);
    for (key, numbers) in numbers {
        assert_eq!(numbers, (0..40).collect::<Vec<_>>(), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rolled_back_events_never_appear() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    let relay = Running::start(fixture.relay().sink(sink(&notes, |_| Ok(()))));
    let mut conn = fixture.connect().await;
    for number in 0..5 {
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
        tx.emit(Event::to("orders").key("k").bytes(format!("k:{number}"))).await.unwrap();
        if number % 2 == 0 {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
    }
    eventually("three events", || notes.all().len() >= 3).await;
    fixture.drained().await;
    relay.stop().await;
    assert_eq!(notes.payloads(), ["k:0", "k:2", "k:4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_carries_its_id_its_cause_and_its_trace() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    let mut record = Record::at("orders", 0, 7);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    record.headers.push("traceparent", Some(trace.into()));
    let cause = Message::new(MessageId::new("order-7").unwrap(), Tenant::none(), record);
    let mut conn = fixture.connect().await;
    let event =
        Event::to("invoices").key("c-1").json(&7).unwrap().event_type("invoice.issued").caused_by(&cause);
    let id = event.id();
    conn.emit(event).await.unwrap();

    let relay = Running::start(fixture.relay().source("/billing").sink(sink(&notes, |_| Ok(()))));
    fixture.drained().await;
    relay.stop().await;

    let published = notes.all().remove(0);
    assert_eq!((published.id(), published.topic(), published.key()), (id, "invoices", Some(&b"c-1"[..])));
    let headers = published.headers();
    let header = |name| headers.last(name).map(|value| String::from_utf8(value.to_vec()).unwrap());
    let id = id.to_string();
    assert_eq!(header("oncebox-id"), Some(id.clone()));
    assert_eq!(header("ce_id"), Some(id));
    assert_eq!(header("ce_source").as_deref(), Some("/billing"));
    assert_eq!(header("ce_type").as_deref(), Some("invoice.issued"));
    assert_eq!(header("ce_specversion").as_deref(), Some("1.0"));
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    assert_eq!(header("traceparent").as_deref(), Some(trace));
    assert_eq!(header("oncebox-causation-id").as_deref(), Some("order-7"));
    let time = header("ce_time").unwrap();
    assert!(time.ends_with('Z') && time.len() == "2026-01-01T00:00:00.000Z".len(), "{time}");
    assert_eq!(headers.iter().filter(|(name, _)| *name == "ce_type").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_events_stay_as_published() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    fixture.emit("orders", &["a", "b"], 0..3).await;
    let relay =
        Running::start(fixture.relay().keep(Duration::from_secs(3600)).sink(sink(&notes, |_| Ok(()))));
    fixture.drained().await;
    relay.stop().await;
    assert_eq!(fixture.events(Some(EventState::Published)).await.len(), 6);
    assert_eq!(fixture.store.purge_published(Duration::from_secs(3600)).await.unwrap(), 0);
    assert_eq!(fixture.store.purge_published(Duration::ZERO).await.unwrap(), 6);
}

/// Polls so rarely that only a signal can be the reason.
fn deaf(fixture: &Fixture) -> Relay<SqliteStore> {
    fixture.relay().poll(Duration::from_secs(3600)).lease(Duration::from_secs(300))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_relay_wakes_when_this_process_writes_events() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    let relay = Running::start(deaf(&fixture).sink(sink(&notes, |_| Ok(()))));
    let mut conn = fixture.connect().await;
    for number in 0..3 {
        // Long enough for the relay to fall asleep.
        tokio::time::sleep(Duration::from_millis(300)).await;
        emit_slowly(&mut conn, number).await;
        eventually("the event is published", || notes.all().len() > number).await;
    }
    relay.stop().await;
}

async fn emit_slowly(conn: &mut SqliteConnection, number: usize) {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
    tx.emit(Event::to("orders").key("k").bytes(format!("k:{number}"))).await.unwrap();
    // The relay is awake before the commit, and must look again after it.
    tokio::time::sleep(Duration::from_millis(50)).await;
    tx.commit().await.unwrap();
}
