//! One event to several sinks, each with a state of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use oncebox::sink::OutgoingEvent;
use oncebox::store::EventState;

use crate::fixture::{Fixture, Notes, Running, eventually, sink};

fn header(event: &OutgoingEvent, name: &str) -> String {
    String::from_utf8(event.headers().last(name).unwrap().to_vec()).unwrap()
}

/// The events themselves go a moment after their copies are written.
async fn only_for_crm(fixture: &Fixture) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let waiting = fixture.events(None).await;
        if waiting.iter().all(|entry| &*entry.event.topic == "oncebox.to.crm.invoice.issued") {
            return assert_eq!(waiting.len(), 6);
        }
        assert!(Instant::now() < deadline, "{waiting:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_away_holds_back_its_own_copies_alone() {
    let fixture = Fixture::new().await;
    let (main, crm, log) = (Notes::default(), Notes::default(), Notes::default());
    let is_away = Arc::new(AtomicBool::new(true));
    let away = Arc::clone(&is_away);
    let answer =
        move |_: &OutgoingEvent| if away.load(Ordering::SeqCst) { Err("away".into()) } else { Ok(()) };
    let relay = fixture
        .relay()
        .sink(sink(&main, |_| Ok(())))
        .copy("crm", "invoice.*", sink(&crm, answer))
        .copy("log", "*", sink(&log, |_| Ok(())));
    let relay = Running::start(relay);
    fixture.emit("invoice.issued", &["a", "b"], 0..3).await;
    fixture.emit("stock", &["a"], 0..1).await;
    eventually("the others have them", || main.all().len() == 7 && log.all().len() == 7).await;
    assert!(crm.all().is_empty());
    only_for_crm(&fixture).await;
    is_away.store(false, Ordering::SeqCst);
    fixture.drained().await;
    relay.stop().await;
    for notes in [&main, &crm, &log] {
        let numbers = notes.first_numbers();
        assert_eq!((&numbers["a"][..3], &numbers["b"]), (&[0, 1, 2][..], &vec![0, 1, 2]));
    }
    assert_eq!((main.all().len(), crm.all().len(), log.all().len()), (7, 6, 7), "no copies of copies");
    let of_main = main.all().into_iter().find(|event| event.topic() == "invoice.issued").unwrap();
    let same = crm.all().into_iter().find(|event| event.id() == of_main.id()).unwrap();
    for name in ["ce_id", "ce_time", "ce_type", "oncebox-id"] {
        assert_eq!(header(&of_main, name), header(&same, name), "{name}");
    }
    assert_eq!(
        (same.topic(), same.key(), same.payload()),
        (of_main.topic(), of_main.key(), of_main.payload())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_name_the_message_that_caused_their_event() {
    let fixture = Fixture::new().await;
    let mut conn = fixture.connect().await;
    sqlx::query(
        "INSERT INTO oncebox_outbox (topic, key, payload, consumer, tenant, causation_id) \
         VALUES ('orders', 'a', 'a:0', 'stock', 'acme', 'order-17')",
    )
    .execute(&mut conn)
    .await
    .unwrap();
    let away = |_: &OutgoingEvent| Err("away".into());
    let (main, crm) = (Notes::default(), Notes::default());
    let relay = fixture.relay().sink(sink(&main, |_| Ok(()))).copy("crm", "orders", sink(&crm, away));
    let relay = Running::start(relay);
    eventually("the main sink has it", || main.all().len() == 1).await;
    relay.stop().await;
    let copies = fixture.events(None).await;
    let copy = copies.iter().find(|entry| &*entry.event.topic == "oncebox.to.crm.orders").unwrap();
    assert_eq!((copy.consumer.as_deref(), copy.tenant.as_deref()), (Some("stock"), Some("acme")));
    assert_eq!(copy.event.causation_id.as_deref(), Some("order-17"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copies_of_a_sink_that_is_gone_are_kept_for_an_operator() {
    let fixture = Fixture::new().await;
    let (main, crm) = (Notes::default(), Notes::default());
    let away = |_: &OutgoingEvent| Err("away".into());
    let both = fixture.relay().sink(sink(&main, |_| Ok(()))).copy("crm", "orders", sink(&crm, away));
    let relay = Running::start(both);
    fixture.emit("orders", &["a"], 0..2).await;
    eventually("the main sink has them", || main.all().len() == 2).await;
    relay.stop().await;
    let relay = Running::start(fixture.relay().sink(sink(&main, |_| Ok(()))));
    fixture.drained().await;
    relay.stop().await;
    let parked = fixture.events(Some(EventState::Parked)).await;
    assert_eq!((parked.len(), main.all().len()), (2, 2), "nobody else gets them");
    assert!(parked[0].error.as_deref().unwrap().contains("not there any more"), "{parked:?}");
}
