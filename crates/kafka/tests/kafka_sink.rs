//! Publishing to a real broker: order under load, and what a topic refuses.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::outbox::{Delivery, OutgoingEvent, Sink};
use oncebox_kafka::{Kafka, KafkaSink};
use support::events::{
    Read, all_delivered, assert_first_copies_in_order, assert_numbers_in_order, numbered, outgoing, read_all,
    stored,
};
use support::topics::{Topics, brokers, unique};

/// Four relays' worth of batches at once, each with keys of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_events_arrive_once_and_in_order() {
    support::init_logs();
    const BATCH: i64 = 500;
    let (brokers, topic) = (brokers(), unique("many"));
    Topics::new().create(&topic, 6, &[]).await;
    let sink = Arc::new(Kafka::brokers(&brokers).sink());
    let publish = |lane: i64| {
        let (sink, topic) = (Arc::clone(&sink), topic.clone());
        tokio::spawn(async move {
            let event = |n: i64| {
                let key = format!("{lane}-{}", n % 25);
                outgoing(stored(&topic, n, Some(&key), Some(n.to_string().into())))
            };
            for batch in 0..25 {
                let events: Vec<OutgoingEvent> = (batch * BATCH..(batch + 1) * BATCH).map(event).collect();
                all_delivered(&sink.deliver(&events).await.unwrap(), events.len());
            }
        })
    };
    for lane in (0..4).map(publish).collect::<Vec<_>>() {
        lane.await.unwrap();
    }
    let read = read_all(&brokers, &topic);
    assert_eq!(read.len(), 50_000, "each once");
    for key in (0..4).flat_map(|lane| (0..25).map(move |n| format!("{lane}-{n}"))) {
        let numbers: Vec<i64> =
            read.iter().filter(|r| r.key.as_deref() == Some(&key)).map(Read::number).collect();
        assert_eq!(numbers.len(), 500, "{key}");
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
}

/// The topic takes less than we may send: the large event is given up, those around it are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_over_the_limit_of_its_topic_is_given_up_alone() {
    support::init_logs();
    let (brokers, topic) = (brokers(), unique("small"));
    Topics::new().create(&topic, 1, &[("max.message.bytes", "20000")]).await;
    // Many record batches in flight behind the one that is refused: they must not overtake it.
    let sink = Kafka::brokers(&brokers).property("batch.num.messages", "20").sink();
    let mut events = numbered(&topic, 0..1_000);
    let large = [13, 500, 501];
    for at in large {
        let key = format!("key-{}", at % 10);
        events.insert(at, outgoing(stored(&topic, 10_000, Some(&key), Some(vec![b'x'; 50_000]))));
    }
    let deliveries = sink.deliver(&events).await.unwrap();
    for (at, delivery) in deliveries.iter().enumerate() {
        match delivery {
            Delivery::Reject { error } => {
                assert!(large.contains(&at), "{at}: {error}");
                assert!(error.contains("max.message.bytes") && error.contains(&topic), "{error}");
            }
            other => assert_eq!((other, large.contains(&at)), (&Delivery::Delivered, false), "{at}"),
        }
    }
    assert_first_copies_in_order(&read_all(&brokers, &topic), 0..1_000);
    all_delivered(&sink.deliver(&numbered(&topic, 1_000..1_100)).await.unwrap(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_topic_refuses_only_the_event_without_a_key() {
    support::init_logs();
    let (brokers, topic) = (brokers(), unique("compacted"));
    Topics::new().create(&topic, 1, &[("cleanup.policy", "compact")]).await;
    let sink = Kafka::brokers(&brokers).sink();
    let mut events = numbered(&topic, 0..100);
    events.insert(40, outgoing(stored(&topic, 1, None, Some(b"1".to_vec()))));
    let deliveries = sink.deliver(&events).await.unwrap();
    let Delivery::Reject { error } = &deliveries[40] else { panic!("{:?}", deliveries[40]) };
    assert!(error.contains("compacted"), "{error}");
    assert_eq!(deliveries.iter().filter(|d| **d == Delivery::Delivered).count(), 100);
    assert_first_copies_in_order(&read_all(&brokers, &topic), 0..100);
}

/// A megabyte and more, when the topic takes it, needs no property of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topic_alone_says_how_large_an_event_may_be() {
    support::init_logs();
    let (brokers, topic) = (brokers(), unique("large"));
    Topics::new().create(&topic, 1, &[("max.message.bytes", "10000000")]).await;
    let sink = Kafka::brokers(&brokers).sink();
    let events: Vec<_> =
        (0..3).map(|n| outgoing(stored(&topic, n, Some("k"), Some(vec![b'x'; 5_000_000])))).collect();
    all_delivered(&sink.deliver(&events).await.unwrap(), 3);
    assert_eq!(read_all(&brokers, &topic).len(), 3);
}

/// A broker may learn of a topic some time after it was made. A relay tries again, so we do.
async fn deliver_when_known(sink: &KafkaSink, events: &[OutgoingEvent], missing: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match sink.deliver(events).await {
            Ok(deliveries) => return all_delivered(&deliveries, events.len()),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains(missing) && Instant::now() < deadline, "{error}");
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_deleted_is_missed_and_found_again() {
    support::init_logs();
    let (brokers, topics, topic) = (brokers(), Topics::new(), unique("deleted"));
    let sink = Kafka::brokers(&brokers).property("topic.metadata.propagation.max.ms", "500").sink();
    let missing = format!("topic {topic} does not exist");
    let error = sink.deliver(&numbered(&topic, 0..10)).await.unwrap_err().to_string();
    assert!(error.contains(&missing), "{error}");
    topics.create(&topic, 1, &[]).await;
    deliver_when_known(&sink, &numbered(&topic, 0..10), &missing).await;
    topics.delete(&topic).await;
    // What librdkafka makes of the topic's end may come first. A relay tries again, so we do.
    let mut errors = Vec::new();
    while !errors.last().is_some_and(|error: &String| error.contains(&missing)) {
        assert!(errors.len() < 10, "{errors:#?}");
        errors.push(sink.deliver(&numbered(&topic, 10..20)).await.unwrap_err().to_string());
    }
    topics.create(&topic, 1, &[]).await;
    deliver_when_known(&sink, &numbered(&topic, 10..20), &missing).await;
    assert_numbers_in_order(&read_all(&brokers, &topic), 10..20);
}
