//! Events: there if and only if their transaction committed, whole and in order.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use oncebox_core::message::{Headers, Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use oncebox_core::outbox::{Event, EventRow, emit_all};
use oncebox_core::store::{EventState, Outbox, Store, StoredEvent, headers_json};
use uuid::Uuid;

use super::relaying::{Relaying, emit, event, texts};
use super::subject::{Subject, Verdict};

/// What was rolled back never happened, and what is not committed yet is not there yet.
pub async fn events_appear_with_their_transaction_only<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    for ending in ["rolled back", "dropped", "committed"] {
        let mut txn = r.store.claim(&r.inner.consumer, &[]).await?.txn;
        emit_all::<T::Store>(&mut txn, &[event("orders", "a", ending)]).await?;
        // A database with one connection may make us wait here; those that answer do not show the event.
        let early = tokio::time::timeout(Duration::from_millis(500), r.next("orders")).await;
        assert!(early.is_err() || early??.is_empty(), "seen before the commit");
        match ending {
            "rolled back" => r.store.rollback(txn).await,
            "dropped" => drop(txn),
            _ => r.store.commit(txn, None).await?,
        }
    }
    assert_eq!(r.next_texts("orders").await?, ["committed"]);
    assert_eq!(r.entries().await?.len(), 1);
    Ok(())
}

/// Binary keys and payloads, tombstones, absent keys, sizes and headers of any kind come back as they were.
pub async fn an_event_comes_back_whole<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let all_bytes: Vec<u8> = (0..=255).collect();
    let written = [
        Event::to("orders.v1_A-b").key(&all_bytes).bytes(all_bytes.clone()),
        Event::to("orders.v1_A-b"),
        Event::to("orders.v1_A-b").key("").bytes(""),
        Event::to("orders.v1_A-b").key("'ü\\\u{1F980}").bytes("{\"a\":1.0, \"a\": 2}"),
        Event::to("orders.v1_A-b").key(vec![0xff; 4000]).bytes(vec![0; 1024 * 1024]),
    ];
    r.emit(&written).await?;

    let stored = r.next("orders.v1_A-b").await?;
    assert_eq!(stored.len(), written.len());
    for event in &written {
        let stored = find(&stored, event.id())?;
        let row = event.row()?;
        assert_eq!(stored.key.as_deref(), row.key);
        assert_eq!(stored.payload.as_deref(), row.payload);
        assert_eq!(&*stored.topic, row.topic);
        assert!(stored.headers.is_empty());
        assert_eq!((stored.causation_id.as_deref(), stored.attempts), (None, 0));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
        let off = u128::from(stored.created_at_ms.unsigned_abs()).abs_diff(now);
        assert!(off < 60_000, "created_at is the database's now, not {}", stored.created_at_ms);
    }
    Ok(())
}

/// Repeated names keep their order; binary, empty and absent values stay what they are.
pub async fn headers_come_back_whole<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let odd = [
        ("a", Some(Bytes::from_static(&[0, 0xff, b'"', b'\\']))),
        ("b", Some(Bytes::new())),
        ("c", None),
        ("d", Some(Bytes::from("{\"base64\":\"AA==\"}"))),
        ("e", Some(Bytes::from("'\u{1F980}\n\u{1}"))),
        ("ünï \" 'odd'", Some(Bytes::from("1"))),
    ];
    let distinct: Headers = odd.clone().into_iter().collect();
    let repeated: Headers = odd.into_iter().rev().chain([("a", Some(Bytes::from("again")))]).collect();
    for headers in [distinct, repeated] {
        let id = write::<T>(&r, |row| row.headers = headers_json::compact(&headers)).await?;
        assert_eq!(find(&r.next("orders").await?, id)?.headers, headers);
    }
    Ok(())
}

/// What is known of the cause of an event is kept with it.
pub async fn the_cause_of_an_event_is_kept<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let mut record = Record::at("orders", 0, 7);
    record.headers.push("traceparent", Some("00-1-2-01".into()));
    let cause = Message::new(MessageId::new("order 'seven'")?, Tenant::new("acme")?, record);
    r.emit(&[event("orders", "a", "caused").caused_by(&cause)]).await?;
    let entry = r.entry("caused").await?;
    assert_eq!(entry.event.causation_id.as_deref(), Some("order 'seven'"));
    assert_eq!((entry.tenant.as_deref(), entry.consumer), (Some("acme"), None));
    assert_eq!(entry.event.headers.last("traceparent"), Some(b"00-1-2-01".as_slice()));
    assert_eq!(r.next("orders").await?, [entry.event]);

    let id = write::<T>(&r, |row| row.consumer = Some("billing".to_owned())).await?;
    let entries = r.entries().await?;
    let of_consumer = entries.iter().find(|entry| entry.event.id == id).ok_or("it is not there")?;
    assert_eq!(of_consumer.consumer.as_deref(), Some("billing"));
    assert_eq!((of_consumer.tenant.as_deref(), of_consumer.state), (None, EventState::Pending));
    Ok(())
}

/// Events of a topic and key come in the order in which they were written, in one transaction and over several.
pub async fn events_of_a_key_keep_their_order<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    for batch in 0..10 {
        let events: Vec<Event> =
            (0..20).map(|n| event("orders", &format!("k{}", n % 4), &format!("{batch}/{n}"))).collect();
        r.emit(&events).await?;
    }
    let stored = r.next("orders").await?;
    assert_eq!(stored.len(), 200);
    for key in 0..4 {
        let of_key: Vec<StoredEvent> = stored
            .iter()
            .filter(|e| e.key.as_deref() == Some(format!("k{key}").as_bytes()))
            .cloned()
            .collect();
        let expected: Vec<String> =
            (0..10).flat_map(|b| (key..20).step_by(4).map(move |n| format!("{b}/{n}"))).collect();
        assert_eq!(texts(&of_key), expected);
        assert!(of_key.is_sorted_by_key(|e| e.seq), "seq is the order of writing");
    }
    Ok(())
}

/// A batch of events is not bounded by what a statement can take.
pub async fn many_events_are_written_at_once<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let events: Vec<Event> =
        (0..5000).map(|n| event("orders", "a", &n.to_string()).header("n", n.to_string())).collect();
    r.emit(&[]).await?;
    r.emit(&events).await?;
    let stored = r.next("orders").await?;
    assert_eq!(stored.len(), events.len());
    for (n, (stored, event)) in stored.iter().zip(&events).enumerate() {
        assert_eq!((stored.id, texts(std::slice::from_ref(stored))), (event.id(), vec![n.to_string()]));
        assert_eq!(stored.headers.last("n"), Some(n.to_string().as_bytes()));
    }
    Ok(())
}

/// A transaction that began early and commits late: its events are found although later ones were published before.
pub async fn a_late_commit_is_found<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let mut late = r.store.claim(&r.inner.consumer, &[]).await?.txn;
    emit_all::<T::Store>(&mut late, &[event("orders", "a", "late")]).await?;

    let early_events = [event("orders", "b", "early")];
    let other = r.inner.subject.connect().await?;
    let early = emit::<T>(&r.inner, &other, &early_events);
    tokio::pin!(early);
    match tokio::time::timeout(Duration::from_secs(1), &mut early).await {
        Ok(written) => {
            written?;
            r.publish(&["early"], false).await?;
            r.store.commit(late, None).await?;
            assert_eq!(r.next_texts("orders").await?, ["late"]);
        }
        // In a database with one writer the second waits: nothing commits late.
        Err(_) => {
            r.store.commit(late, None).await?;
            early.await?;
            let mut both = r.next_texts("orders").await?;
            both.sort_unstable();
            assert_eq!(both, ["early", "late"]);
        }
    }
    Ok(())
}

/// A place in the outbox is not used again, even when the outbox was empty in between.
pub async fn places_are_not_used_again<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let mut last = 0;
    for text in ["one", "two", "three"] {
        r.emit(&[event("orders", "a", text)]).await?;
        let seq = r.entry(text).await?.event.seq;
        assert!(seq > last, "{seq} after {last}");
        last = seq;
        r.publish(&[text], false).await?;
    }
    Ok(())
}

/// Writes one event to `orders` with some columns set by hand.
async fn write<T: Subject>(
    r: &Relaying<T>,
    change: impl FnOnce(&mut EventRow<'_>),
) -> Result<Uuid, oncebox_core::error::BoxError> {
    let event = Event::to("orders");
    let mut row = event.row()?;
    change(&mut row);
    let mut txn = r.store.claim(&r.inner.consumer, &[]).await?.txn;
    T::Store::write_events(&mut txn, &[row]).await?;
    r.store.commit(txn, None).await?;
    Ok(event.id())
}

fn find(events: &[StoredEvent], id: Uuid) -> Result<&StoredEvent, oncebox_core::error::BoxError> {
    events.iter().find(|event| event.id == id).ok_or_else(|| format!("{id} is not there").into())
}
