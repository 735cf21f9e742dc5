//! Publishing to a real broker: what arrives, in which order, and what is not lost.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::{Arc, Mutex};

use lapin::types::AMQPValue;
use oncebox_core::outbox::{Delivery, OutgoingEvent, Sink};
use oncebox_rabbitmq::Rabbitmq;
use support::broker::{Broker, text};
use support::events::{
    CREATED_MS, all_delivered, assert_first_copies_in_order, number, numbered, outgoing, stored,
};
use support::{eventually, unique, url};

fn rabbitmq() -> Rabbitmq {
    Rabbitmq::nodes(url()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_arrives_with_its_id_its_headers_and_its_key() {
    let (broker, name) = (Broker::connect(&url()).await, unique("shape"));
    broker.exchange_with_queue(&name).await;
    let mut event = stored("stock.changed", 7, Some("A-1"), Some(br#"{"qty":2}"#.to_vec()));
    event.headers.push("content-type", Some("application/json".into()));
    event.headers.push("tenant", Some("acme".into()));
    event.headers.push("raw", Some(vec![0xff, 0].into()));
    event.headers.push("none", None);
    event.causation_id = Some("order-17".into());
    let tombstone = stored("stock.changed", 8, None, None);
    let sink = rabbitmq().sink(&name).unwrap();
    all_delivered(&sink.deliver(&[outgoing(event), outgoing(tombstone)]).await.unwrap(), 2);

    let received = broker.take(&name, 2).await;
    let (first, second) = (&received[0], &received[1]);
    assert_eq!((first.routing_key.as_str(), first.data.as_slice()), ("stock.changed", &br#"{"qty":2}"#[..]));
    let id = "00000000-0000-0000-0000-000000000007";
    let properties = &first.properties;
    assert_eq!(properties.message_id().as_ref().unwrap().as_str(), id);
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(properties.kind().as_ref().unwrap().as_str(), "stock.changed");
    assert_eq!(*properties.delivery_mode(), Some(2), "it survives a restart");
    assert_eq!(*properties.timestamp(), Some(CREATED_MS as u64 / 1000));
    let headers = properties.headers().as_ref().unwrap().inner();
    let expected = [
        ("oncebox-id", text(id)),
        ("ce_id", text(id)),
        ("ce_source", text("test")),
        ("ce_specversion", text("1.0")),
        ("ce_type", text("stock.changed")),
        ("ce_time", text("2023-11-14T22:13:20.123Z")),
        ("oncebox-causation-id", text("order-17")),
        ("oncebox-key", text("A-1")),
        ("content-type", text("application/json")),
        ("tenant", text("acme")),
        ("raw", AMQPValue::ByteArray(vec![0xff, 0].into())),
        ("none", AMQPValue::Void),
    ];
    for (name, value) in &expected {
        assert_eq!(headers.get(*name), Some(value), "{name}");
    }
    assert_eq!(headers.len(), expected.len());

    assert!(second.data.is_empty());
    assert_eq!(*second.properties.content_type(), None);
    assert!(!second.properties.headers().as_ref().unwrap().contains_key("oncebox-key"));
}

/// Four relays' worth of batches at once, each with keys of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_events_arrive_once_and_in_order() {
    const BATCH: i64 = 500;
    let (broker, name) = (Broker::connect(&url()).await, unique("many"));
    broker.exchange_with_queue(&name).await;
    let sink = Arc::new(rabbitmq().sink(&name).unwrap());
    let publish = |lane: i64| {
        let sink = Arc::clone(&sink);
        tokio::spawn(async move {
            let event = |n: i64| {
                let key = format!("{lane}-{}", n % 25);
                outgoing(stored("t", lane * 1_000_000 + n, Some(&key), Some(n.to_string().into())))
            };
            for batch in 0..10 {
                let events: Vec<OutgoingEvent> = (batch * BATCH..(batch + 1) * BATCH).map(event).collect();
                all_delivered(&sink.deliver(&events).await.unwrap(), events.len());
            }
        })
    };
    for lane in (0..4).map(publish).collect::<Vec<_>>() {
        lane.await.unwrap();
    }
    assert_eq!(broker.count(&name).await, 20_000, "each once");
    let received = broker.take(&name, 20_000).await;
    for key in (0..4).flat_map(|lane| (0..25).map(move |n| format!("{lane}-{n}"))) {
        let of_key = |r: &&lapin::message::Delivery| {
            r.properties.headers().as_ref().unwrap().inner().get("oncebox-key") == Some(&text(&key))
        };
        let numbers: Vec<i64> = received.iter().filter(of_key).map(number).collect();
        assert_eq!(numbers.len(), 200, "{key}");
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_no_queue_takes_wait_until_one_does() {
    let (broker, name) = (Broker::connect(&url()).await, unique("unbound"));
    broker.exchange(&name).await;
    let sink = rabbitmq().sink(&name).unwrap();
    let error = sink.deliver(&numbered("stock", 0..50)).await.unwrap_err().to_string();
    assert!(error.contains("no queue takes the events of topic stock") && error.contains(&name), "{error}");
    broker.queue(&name, &[]).await;
    broker.bind(&name, &name, "stock").await;
    all_delivered(&sink.deliver(&numbered("stock", 0..50)).await.unwrap(), 50);
    assert_first_copies_in_order(&broker.take(&name, 50).await, 0..50);
    assert_eq!(broker.count(&name).await, 0);
}

/// With the key in the routing key some events have a queue and others have none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_no_queue_takes_holds_back_its_key_alone() {
    let (broker, name) = (Broker::connect(&url()).await, unique("by-key"));
    broker.exchange(&name).await;
    broker.queue(&name, &[]).await;
    for key in (0..10).filter(|key| *key != 3) {
        broker.bind(&name, &name, &format!("key-{key}")).await;
    }
    let sink = rabbitmq().sink("elsewhere").unwrap().route("st*", &name, "{key}").unwrap();
    let events = numbered("stock", 0..100);
    let deliveries = sink.deliver(&events).await.unwrap();
    for (at, delivery) in deliveries.iter().enumerate() {
        match delivery {
            Delivery::Retry { error, after: None } => {
                assert_eq!(at, 3);
                assert!(error.contains("key-3"), "{error}");
            }
            Delivery::Behind => assert!(at > 3 && at % 10 == 3, "{at}"),
            other => assert_eq!((other, at % 10 == 3), (&Delivery::Delivered, false), "{at}"),
        }
    }
    broker.bind(&name, &name, "key-3").await;
    let held: Vec<_> = events.into_iter().skip(3).step_by(10).collect();
    all_delivered(&sink.deliver(&held).await.unwrap(), 10);
    assert_first_copies_in_order(&broker.take(&name, 100).await, 0..100);
}

/// The client hands a returned message to whichever confirmation comes next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_a_thousand_at_once_those_that_come_back_are_told_apart() {
    let (broker, name) = (Broker::connect(&url()).await, unique("mixed"));
    broker.exchange(&name).await;
    broker.queue(&name, &[]).await;
    broker.bind(&name, &name, "bound.*").await;
    let sink = rabbitmq().sink("elsewhere").unwrap().route("*", &name, "{key}").unwrap();
    let is_bound = |n: i64| n % 3 == 0 || n % 7 == 0;
    let event = |n: i64| {
        let key = if is_bound(n) { format!("bound.{n}") } else { format!("unbound.{n}") };
        outgoing(stored("t", n, Some(&key), Some(n.to_string().into())))
    };
    for batch in 0..5 {
        let numbers = batch * 1_000..(batch + 1) * 1_000;
        let events: Vec<_> = numbers.clone().map(event).collect();
        let deliveries = sink.deliver(&events).await.unwrap();
        for (n, delivery) in numbers.clone().zip(&deliveries) {
            assert_eq!(*delivery == Delivery::Delivered, is_bound(n), "{n}: {delivery:?}");
        }
        let bound: Vec<i64> = numbers.filter(|n| is_bound(*n)).collect();
        let mut received: Vec<i64> = broker.take(&name, bound.len()).await.iter().map(number).collect();
        received.sort_unstable();
        assert_eq!(received, bound);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_is_missing_holds_up_its_own_topic_only() {
    let (broker, name) = (Broker::connect(&url()).await, unique("exchange"));
    let missing = format!("{name}-missing");
    broker.exchange_with_queue(&name).await;
    let sink = rabbitmq().sink(&name).unwrap().route("lost", &missing, "{topic}").unwrap();
    all_delivered(&sink.deliver(&numbered("stock", 0..10)).await.unwrap(), 10);
    let error = sink.deliver(&numbered("lost", 0..10)).await.unwrap_err().to_string();
    assert!(
        error.contains(&format!("exchange {missing} does not exist")) && error.contains("lost"),
        "{error}"
    );
    all_delivered(&sink.deliver(&numbered("stock", 10..20)).await.unwrap(), 10);
    broker.exchange_with_queue(&missing).await;
    all_delivered(&sink.deliver(&numbered("lost", 0..10)).await.unwrap(), 10);
    assert_first_copies_in_order(&broker.take(&missing, 10).await, 0..10);
    assert_first_copies_in_order(&broker.take(&name, 20).await, 0..20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_was_deleted_is_missed_and_found_again() {
    let (broker, name) = (Broker::connect(&url()).await, unique("deleted"));
    broker.exchange_with_queue(&name).await;
    let sink = rabbitmq().sink(&name).unwrap();
    all_delivered(&sink.deliver(&numbered("t", 0..10)).await.unwrap(), 10);
    broker.delete_exchange(&name).await;
    // The channel that had found it is closed first. A relay tries again, so we do.
    let missing = format!("exchange {name} does not exist");
    let mut errors = Vec::new();
    while !errors.last().is_some_and(|error: &String| error.contains(&missing)) {
        assert!(errors.len() < 5, "{errors:#?}");
        errors.push(sink.deliver(&numbered("t", 10..20)).await.unwrap_err().to_string());
    }
    broker.exchange(&name).await;
    broker.bind(&name, &name, "#").await;
    all_delivered(&sink.deliver(&numbered("t", 10..20)).await.unwrap(), 10);
    assert_first_copies_in_order(&broker.take(&name, 20).await, 0..20);
}

/// While it is emptied it refuses some events and takes others, also of one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_and_the_order_of_each_key_holds() {
    let (broker, name) = (Broker::connect(&url()).await, unique("full"));
    broker.exchange(&name).await;
    let limits = [("x-max-length", AMQPValue::LongInt(3)), ("x-overflow", text("reject-publish"))];
    broker.queue(&name, &limits).await;
    broker.bind(&name, &name, "#").await;
    let sink = rabbitmq().sink(&name).unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let emptying = tokio::spawn({
        let (received, name) = (Arc::clone(&received), name.clone());
        async move {
            loop {
                let taken = broker.take(&name, broker.count(&name).await as usize).await;
                received.lock().unwrap().extend(taken);
            }
        }
    });
    let (mut left, mut refused) = (numbered("t", 0..1_000), 0);
    while !left.is_empty() {
        let deliveries = sink.deliver(&left).await.unwrap();
        refused += deliveries.iter().filter(|d| matches!(d, Delivery::Retry { .. })).count();
        let kept = left.into_iter().zip(deliveries).filter(|(_, d)| *d != Delivery::Delivered);
        left = kept.map(|(event, _)| event).collect();
    }
    assert!(refused > 0, "it was never full");
    eventually("all are taken out", async || received.lock().unwrap().len() >= 1_000).await;
    emptying.abort();
    assert_first_copies_in_order(&received.lock().unwrap(), 0..1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_headers_do_not_fit_is_given_up_alone() {
    let (broker, name) = (Broker::connect(&url()).await, unique("headers"));
    broker.exchange_with_queue(&name).await;
    let sink = rabbitmq().sink(&name).unwrap();
    let mut events = numbered("t", 0..10);
    let with_header = |header: &str, bytes: usize| {
        let mut event = stored("t", 99, Some("key-5"), Some(b"99".to_vec()));
        event.headers.push(header, Some(vec![b'x'; bytes].into()));
        outgoing(event)
    };
    events.insert(2, with_header("large", 200_000));
    events.insert(3, with_header(&"n".repeat(256), 1));
    let deliveries = sink.deliver(&events).await.unwrap();
    for (at, problem) in [(2, "bytes, more than RabbitMQ takes"), (3, "the name of a header has 256 bytes")] {
        let Delivery::Reject { error } = &deliveries[at] else { panic!("{:?}", deliveries[at]) };
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(deliveries.iter().filter(|d| **d == Delivery::Delivered).count(), 10);
    // One that just fits is taken: the limit is the broker's.
    let sink_takes = sink.deliver(&[with_header("large", 120_000)]).await.unwrap();
    assert_eq!(sink_takes, [Delivery::Delivered]);
    assert_eq!(broker.count(&name).await, 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_can_be_reached_without_an_exchange() {
    let (broker, name) = (Broker::connect(&url()).await, unique("direct"));
    broker.queue(&name, &[]).await;
    let sink = rabbitmq().sink("elsewhere").unwrap().route("*", "", &name).unwrap();
    all_delivered(&sink.deliver(&numbered("t", 0..5)).await.unwrap(), 5);
    assert_first_copies_in_order(&broker.take(&name, 5).await, 0..5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_enter_is_told_so_without_the_password() {
    let address = url().rsplit('@').next().unwrap().to_owned();
    let error = |urls: String| async move {
        let sink = Rabbitmq::nodes(urls).unwrap().sink("x").unwrap();
        sink.deliver(&numbered("t", 0..1)).await.unwrap_err().to_string()
    };
    let refused = error(format!("amqp://guest:canary-1@{address}")).await;
    assert!(refused.contains("ACCESS_REFUSED") && !refused.contains("canary"), "{refused}");
    let nowhere = error(format!("amqp://guest:canary-1@127.0.0.1:1,amqp://guest:guest@{address}-no")).await;
    assert!(nowhere.contains("127.0.0.1:1") && nowhere.contains("refused"), "{nowhere}");
    assert!(nowhere.contains("vhost") && !nowhere.contains("canary"), "{nowhere}");
}
