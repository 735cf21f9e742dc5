//! A failure holds back its key, or its topic, and nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oncebox::sink::{ByEvent, Delivery, OutgoingEvent, Sink};
use oncebox::store::{EventFilter, EventState, OutboxAdmin};
use oncebox::{Backoff, BoxError, RetryPolicy, reject};

use crate::fixture::{Fixture, Notes, Running, eventually, payload, sink};

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_event_holds_back_its_key_only() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    fixture.emit("orders", &["a", "b", "c"], 0..10).await;
    let others = notes.clone();
    // The first event of `a` fails until all others are through.
    let relay = Running::start(fixture.relay().sink(sink(&notes, move |event| {
        let through = others.payloads().iter().filter(|p| !p.starts_with('a')).count();
        if payload(event) == "a:0" && through < 40 { Err("not yet".into()) } else { Ok(()) }
    })));
    eventually("the others are through", || notes.all().len() == 20).await;
    fixture.emit("orders", &["a", "b", "c"], 10..20).await;
    fixture.drained().await;
    relay.stop().await;
    let numbers = notes.first_numbers();
    for key in ["a", "b", "c"] {
        assert_eq!(numbers[key], (0..20).collect::<Vec<_>>(), "{key}");
    }
    assert_eq!(notes.all().len(), 60);
    assert_eq!(notes.payloads().iter().position(|p| p.starts_with('a')), Some(40), "held all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_event_is_parked_and_can_be_retried() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    fixture.emit("orders", &["a"], 0..3).await;
    let mended = Arc::new(AtomicU32::new(0));
    let state = Arc::clone(&mended);
    let relay = Running::start(fixture.relay().sink(sink(&notes, move |event| {
        if payload(event) == "a:1" && state.load(Ordering::SeqCst) == 0 {
            return Err(reject("the receiver says 400"));
        }
        Ok(())
    })));
    fixture.drained().await;
    assert_eq!(notes.payloads(), ["a:0", "a:2"]);
    let parked = fixture.events(Some(EventState::Parked)).await;
    assert_eq!(parked.len(), 1);
    assert_eq!(parked[0].error.as_deref(), Some("the receiver says 400"));

    mended.store(1, Ordering::SeqCst);
    let chosen = EventFilter { seqs: vec![parked[0].event.seq], limit: 10, ..EventFilter::default() };
    assert_eq!(fixture.store.retry_events(&chosen).await.unwrap(), 1);
    eventually("it is published", || notes.payloads().len() == 3).await;
    fixture.drained().await;
    relay.stop().await;
    assert!(fixture.events(None).await.is_empty());
}

/// A key is parked as a whole, and released by retrying its events in their order.
#[tokio::test(flavor = "multi_thread")]
async fn a_sink_may_park_whole_keys() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    fixture.emit("orders", &["a", "b"], 0..4).await;
    let mended = Arc::new(AtomicU32::new(0));
    let state = Arc::clone(&mended);
    let failing = sink(&notes, move |event| {
        if payload(event) == "a:1" && state.load(Ordering::SeqCst) == 0 {
            return Err(reject("the receiver says 400"));
        }
        Ok(())
    });
    let relay = Running::start(fixture.relay().sink(failing.park_keys(true)));
    fixture.drained().await;
    fixture.emit("orders", &["a", "b"], 4..6).await;
    fixture.drained().await;
    let numbers = notes.first_numbers();
    assert_eq!((&numbers["a"], &numbers["b"]), (&vec![0], &vec![0, 1, 2, 3, 4, 5]));
    let parked = fixture.events(Some(EventState::Parked)).await;
    let seqs: Vec<i64> = parked.iter().map(|entry| entry.event.seq).collect();
    let errors: Vec<&str> = parked.iter().filter_map(|entry| entry.error.as_deref()).collect();
    let behind = format!("behind event {}: retry or drop that one first", seqs[0]);
    assert_eq!(errors, ["the receiver says 400", &behind, &behind, &behind, &behind]);

    // One that is retried before its turn is parked again.
    let retry = |seqs: Vec<i64>| EventFilter { seqs, limit: 10, ..EventFilter::default() };
    assert_eq!(fixture.store.retry_events(&retry(vec![seqs[2]])).await.unwrap(), 1);
    fixture.drained().await;
    assert_eq!(fixture.events(Some(EventState::Parked)).await.len(), 5);
    assert_eq!(notes.first_numbers()["a"], [0]);
    // The first of them is dropped: those behind it are still parked, and go in their order.
    mended.store(1, Ordering::SeqCst);
    assert_eq!(fixture.store.retry_events(&retry(seqs[..2].to_vec())).await.unwrap(), 2);
    eventually("the first two are out", || notes.first_numbers()["a"].len() == 3).await;
    assert_eq!(fixture.store.drop_events(&retry(vec![seqs[2]])).await.unwrap(), 1);
    assert_eq!(fixture.store.retry_events(&retry(seqs[3..].to_vec())).await.unwrap(), 2);
    eventually("the others are out", || notes.first_numbers()["a"].len() == 5).await;
    fixture.emit("orders", &["a"], 6..7).await;
    fixture.drained().await;
    relay.stop().await;
    assert_eq!(notes.first_numbers()["a"], [0, 1, 2, 4, 5, 6]);
    assert!(fixture.events(None).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_parked_after_its_last_attempt() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    fixture.emit("orders", &["a"], 0..2).await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let quick = RetryPolicy {
        attempts: 3,
        backoff: Backoff::new(std::time::Duration::from_millis(10), std::time::Duration::from_millis(20)),
    };
    let failing = sink(&notes, move |event| {
        if payload(event) != "a:0" {
            return Ok(());
        }
        counted.fetch_add(1, Ordering::SeqCst);
        Err("the receiver says 500".into())
    });
    let relay = Running::start(fixture.relay().sink(failing.retry(quick)));
    fixture.drained().await;
    relay.stop().await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    assert_eq!(notes.payloads(), ["a:1"], "a parked event holds back nobody");
    assert_eq!(fixture.events(Some(EventState::Parked)).await[0].event.attempts, 3);
}

/// Fails as a whole for some topics.
struct Away(Notes, &'static str);

impl Sink for Away {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        if events[0].topic() == self.1 {
            return Err("the topic does not exist".into());
        }
        events.iter().for_each(|event| self.0.take(event));
        Ok(vec![Delivery::Delivered; events.len()])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_away_stops_nobody_else() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    let keys: Vec<String> = (0..200).map(|key| format!("k{key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    fixture.emit("missing", &keys, 0..10).await;
    fixture.emit("orders", &keys, 0..10).await;
    let relay = Running::start(fixture.relay().sink(Away(notes.clone(), "missing")));
    eventually("the others are through", || notes.all().len() == 2000).await;
    relay.stop().await;
    let left = fixture.events(None).await;
    assert_eq!(left.len(), 2000);
    assert!(left.iter().all(|entry| entry.state == EventState::Pending && entry.event.attempts == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_sink_loses_nothing() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    fixture.emit("orders", &["a", "b"], 0..5).await;
    let panics = AtomicU32::new(0);
    let relay = Running::start(fixture.relay().sink(sink(&notes, move |event| {
        assert!(payload(event) != "a:2" || panics.fetch_add(1, Ordering::SeqCst) >= 2, "on purpose");
        Ok(())
    })));
    fixture.drained().await;
    relay.stop().await;
    let numbers = notes.first_numbers();
    assert_eq!(numbers["a"], [0, 1, 2, 3, 4]);
    assert_eq!(numbers["b"], [0, 1, 2, 3, 4]);
    assert_eq!(notes.all().len(), 10, "only the event that panicked was tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_have_their_own_sinks_and_the_rest_is_parked() {
    let fixture = Fixture::new().await;
    let (mails, orders) = (Notes::default(), Notes::default());
    for topic in ["mail.sent", "orders", "unknown"] {
        fixture.emit(topic, &["a"], 0..2).await;
    }
    let relay =
        fixture.relay().route("mail.*", sink(&mails, |_| Ok(()))).route("orders", sink(&orders, |_| Ok(())));
    let relay = Running::start(relay);
    fixture.drained().await;
    relay.stop().await;
    assert_eq!(
        (mails.payloads(), orders.payloads()),
        (vec!["a:0".into(), "a:1".into()], vec!["a:0".into(), "a:1".into()])
    );
    let parked = fixture.events(Some(EventState::Parked)).await;
    assert_eq!(parked.len(), 2);
    assert!(parked[0].error.as_deref().unwrap().contains("no sink takes the topic unknown"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_event_does_not_hold_up_other_keys() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    let keys: Vec<String> = (0..64).map(|key| format!("k{key}")).collect();
    let mut all: Vec<&str> = vec!["slow"];
    all.extend(keys.iter().map(String::as_str));
    fixture.emit("orders", &all, 0..3).await;
    let (seen, gate) = (notes.clone(), Arc::new(tokio::sync::Notify::new()));
    let opened = Arc::clone(&gate);
    let sink = ByEvent::from_fn(move |event: OutgoingEvent| {
        let (seen, gate) = (seen.clone(), Arc::clone(&gate));
        async move {
            if event.key() == Some(b"slow") && payload(&event) == "slow:0" {
                gate.notified().await;
            }
            seen.take(&event);
            Ok(())
        }
    });
    let relay = Running::start(fixture.relay().sink(sink));
    // A shard holds up to a few of the keys; a batch waits for the slow one, the other shards do not.
    eventually("most others are through", || notes.all().len() > 64 * 3 / 2).await;
    opened.notify_one();
    fixture.drained().await;
    relay.stop().await;
    assert_eq!(notes.first_numbers()["slow"], [0, 1, 2]);
}
