//! Order per key, and how much happens at once.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod receiver;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oncebox_core::outbox::{Delivery, OutgoingEvent, Sink};
use oncebox_webhook::Webhook;
use receiver::{Receiver, Reply, event};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_key_holds_back_itself_and_nobody_else() {
    let ill = Arc::new(AtomicBool::new(true));
    let receiver = Receiver::start({
        let ill = Arc::clone(&ill);
        move |request| match (request.header("oncebox-key"), request.body.as_slice()) {
            (Some("b"), b"2") if ill.load(Ordering::SeqCst) => Reply::status("503 Busy"),
            (Some("c"), b"2") => Reply::status("400 Bad Request"),
            _ => Reply::status("200 OK"),
        }
    })
    .await;
    let sink = Webhook::to(&receiver.url).unwrap().at_once(3).into_sink();
    let events: Vec<OutgoingEvent> = ["1", "2", "3", "4"]
        .iter()
        .flat_map(|payload| ["a", "b", "c", "d"].map(|key| event(Some(key), Some(payload), &[])))
        .collect();

    let deliveries = sink.deliver(&events).await.unwrap();
    for (event, delivery) in events.iter().zip(&deliveries) {
        let payload = event.payload().unwrap().as_ref();
        match (event.key().unwrap(), payload) {
            (b"b", b"2") => assert!(matches!(delivery, Delivery::Retry { after: None, .. }), "{delivery:?}"),
            (b"b", b"3" | b"4") => assert_eq!(delivery, &Delivery::Behind),
            (b"c", b"2") => assert!(matches!(delivery, Delivery::Reject { .. }), "{delivery:?}"),
            _ => assert_eq!(delivery, &Delivery::Delivered),
        }
    }

    // What was held comes again, with the same ids, once the receiver is well.
    ill.store(false, Ordering::SeqCst);
    let held: Vec<OutgoingEvent> = events
        .iter()
        .zip(&deliveries)
        .filter(|(_, delivery)| matches!(delivery, Delivery::Retry { .. } | Delivery::Behind))
        .map(|(event, _)| event.clone())
        .collect();
    assert_eq!(sink.deliver(&held).await.unwrap(), vec![Delivery::Delivered; 3]);

    let mut by_key: HashMap<String, String> = HashMap::new();
    let mut ids = HashSet::new();
    for request in receiver.received() {
        let order = by_key.entry(request.header("oncebox-key").unwrap().to_owned()).or_default();
        order.push_str(std::str::from_utf8(&request.body).unwrap());
        ids.insert(request.header("idempotency-key").unwrap().to_owned());
    }
    assert_eq!(by_key["a"], "1234");
    assert_eq!(by_key["b"], "12234");
    assert_eq!(by_key["c"], "1234");
    assert_eq!(by_key["d"], "1234");
    assert_eq!(ids.len(), events.len());
}

#[tokio::test]
async fn a_delivery_that_is_dropped_sends_nothing_more() {
    let receiver = Receiver::start(|_| Reply::Stuck(String::new())).await;
    let sink = Webhook::to(&receiver.url).unwrap().at_once(2).into_sink();
    let events: Vec<OutgoingEvent> = (0..10).map(|n| event(Some(&n.to_string()), Some("{}"), &[])).collect();
    let two_arrived = async {
        while receiver.received().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        deliveries = sink.deliver(&events) => panic!("{deliveries:?}"),
        () = two_arrived => {}
    }
    receiver.all_connections_are_closed().await;
    assert_eq!(receiver.received().len(), 2, "at most two at once, and none after the drop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_more_connections_than_requests_at_once() {
    let receiver = Receiver::start(|_| Reply::status("200 OK")).await;
    let sink = Webhook::to(&receiver.url).unwrap().at_once(4).into_sink();
    let events: Vec<OutgoingEvent> = (0..2000).map(|_| event(None, Some("{}"), &[])).collect();
    let deliveries = sink.deliver(&events).await.unwrap();
    assert_eq!(deliveries, vec![Delivery::Delivered; 2000]);
    assert!((1..=4).contains(&receiver.most_open()), "{} connections", receiver.most_open());
}
