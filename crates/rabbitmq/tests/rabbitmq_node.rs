//! Brokers of the tests' own: killed, stopped, frozen, short of memory, impatient.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::AMQPValue;
use oncebox_core::outbox::{Delivery, OutgoingEvent, Sink};
use oncebox_rabbitmq::{Rabbitmq, RabbitmqSink};
use support::broker::Broker;
use support::events::{assert_first_copies_in_order, numbered, outgoing, stored};
use support::eventually;
use support::inbox::{Scene, batches_of};
use support::node::Node;
use tokio::time::timeout;

/// Delivers as a relay does: what failed is tried again, and what is behind it waits.
async fn deliver_all(sink: &RabbitmqSink, mut left: Vec<OutgoingEvent>) {
    while !left.is_empty() {
        match sink.deliver(&left).await {
            Ok(deliveries) => {
                let kept = left.into_iter().zip(deliveries).filter(|(_, d)| *d != Delivery::Delivered);
                left = kept.map(|(event, _)| event).collect();
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_and_stopped_loses_nothing_and_doubles_nothing() {
    let mut node = Node::start("").await;
    let (scene, broker) = (Scene::new().await, Broker::connect(&node.url()).await);
    broker.exchange_with_queue("q").await;
    broker.close().await;
    let rabbitmq = Rabbitmq::nodes(node.url()).unwrap().heartbeat(Duration::from_secs(2));
    let worker = scene.worker_of(scene.inbox().batch_bounds(batches_of(50)));
    let running = scene.start_worker(worker, rabbitmq.source("q").prefetch(100));
    let sink = rabbitmq.sink("q").unwrap();
    let publishing = tokio::spawn(async move {
        for batch in 0..60 {
            deliver_all(&sink, numbered("t", batch * 50..(batch + 1) * 50)).await;
        }
    });
    scene.effects_become(200).await;
    node.kill();
    node.start_again().await;
    let before = scene.effects().await.len();
    scene.effects_become((before + 200).min(2_500)).await;
    node.stop();
    node.start_again().await;
    timeout(support::PATIENCE, publishing).await.unwrap().unwrap();
    scene.effects_become(3_000).await;
    let broker = Broker::connect(&node.url()).await;
    scene.drain(running, &broker, &rabbitmq.source("q")).await;
    let mut bodies: Vec<(i64, String)> = scene
        .details()
        .await
        .into_iter()
        .map(|(_, key, body, _)| (body.unwrap().parse().unwrap(), key.unwrap()))
        .collect();
    for key in 0..10 {
        let key = format!("key-{key}");
        let numbers: Vec<i64> = bodies.iter().filter(|(_, own)| *own == key).map(|(n, _)| *n).collect();
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
    bodies.sort_unstable();
    assert_eq!(bodies.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (0..3_000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_takes_less_is_found_out_event_by_event_and_one_that_is_short_is_waited_for() {
    let node = Node::start("max_message_size = 100000\n").await;
    let broker = Broker::connect(&node.url()).await;
    broker.exchange_with_queue("q").await;
    let rabbitmq = Rabbitmq::nodes(node.url()).unwrap();
    let sink = rabbitmq.sink("q").unwrap().stall_timeout(Duration::from_secs(2));

    // Larger than the broker takes: it is given up, those around it are not.
    let mut events = numbered("t", 0..200);
    let large = |n: i64| outgoing(stored("t", n, Some("key-3"), Some(vec![b'x'; 200_000])));
    for at in [13, 150, 151] {
        events.insert(at, large(10_000 + at as i64));
    }
    let deliveries = sink.deliver(&events).await.unwrap();
    for (at, delivery) in deliveries.iter().enumerate() {
        match delivery {
            Delivery::Reject { error } => {
                assert!([13, 150, 151].contains(&at), "{at}: {error}");
                assert!(error.contains("message size"), "{error}");
            }
            other => {
                assert_eq!((other, events[at].payload().unwrap().len() < 10), (&Delivery::Delivered, true));
            }
        }
    }
    let count = broker.count("q").await as usize;
    assert_first_copies_in_order(&broker.take("q", count).await, 0..200);

    // Short of memory: publishers are blocked, and nobody waits for ever.
    node.ctl(&["set_vm_memory_high_watermark", "0.00001"]);
    let mut errors = Vec::new();
    eventually("publishers are blocked", async || match sink.deliver(&numbered("t", 0..100)).await {
        // It takes a moment until the broker notices.
        Ok(_) => false,
        Err(error) => {
            errors.push(error.to_string());
            errors.last().is_some_and(|error| error.contains("blocked publishers"))
        }
    })
    .await;
    node.ctl(&["set_vm_memory_high_watermark", "0.4"]);
    deliver_all(&sink, numbered("t", 0..100)).await;
    let count = broker.count("q").await as usize;
    assert_first_copies_in_order(&broker.take("q", count).await, 0..100);

    // A relay that lets go while the broker stands still: what had not left is not sent later.
    let many: Vec<_> = (0..500).map(|n| outgoing(stored("t", n, None, Some(vec![b'x'; 99_000])))).collect();
    node.freeze();
    let delivering = timeout(Duration::from_millis(500), sink.deliver(&many)).await;
    assert!(delivering.is_err(), "nothing is confirmed");
    drop(sink);
    node.thaw();
    eventually("its connection is gone", async || node.connections() == 1).await;
    let arrived = broker.count("q").await;
    assert!(arrived < 500, "all {arrived} were sent");
}

/// A cluster of three: the node that leads the queue dies, another one leads it, and the consumer stays where it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_queue_whose_leader_dies_is_read_on() {
    let mut first = Node::start("").await;
    let second = Node::join(&first, "second").await;
    let third = Node::join(&first, "third").await;
    let everywhere = ("x-quorum-initial-group-size", AMQPValue::LongInt(3));
    let broker = Broker::connect(&first.url()).await;
    broker.quorum_queue("q", &[everywhere]).await;
    broker.close().await;
    assert!(first.leads("q", &second), "a queue is led where it was made");

    let (scene, broker) = (Scene::new().await, Broker::connect(&second.url()).await);
    let rabbitmq = Rabbitmq::nodes(format!("{},{}", second.url(), third.url())).unwrap();
    let worker = scene.worker_of(scene.inbox().batch_bounds(batches_of(10)));
    let running = scene.start_worker(worker, rabbitmq.source("q").prefetch(40));
    let put = async |ids: std::ops::Range<u32>| {
        for id in ids {
            let properties = BasicProperties::default().with_message_id(id.to_string().into());
            broker.put("q", b"{}", properties.with_delivery_mode(2)).await;
        }
    };
    put(0..200).await;
    scene.effects_become(50).await;
    first.kill();
    eventually("another one leads", async || second.leads("q", &second) || third.leads("q", &second)).await;
    put(200..400).await;
    scene.effects_become(400).await;
    first.start_again().await;
    put(400..450).await;
    scene.effects_become(450).await;
    scene.drain(running, &broker, &rabbitmq.source("q")).await;
    let mut effects = scene.effects().await;
    effects.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(effects, (0..450).map(|n| n.to_string()).collect::<Vec<_>>());
}

/// The broker closes a channel whose consumer does not acknowledge in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_is_too_slow_for_the_broker_begins_again() {
    let node = Node::start("consumer_timeout = 1000\n").await;
    // How often a channel looks; a minute otherwise.
    node.ctl(&["eval", "application:set_env(rabbit, channel_tick_interval, 500)."]);
    let (scene, broker) = (Scene::new().await, Broker::connect(&node.url()).await);
    broker.queue("q", &[]).await;
    for id in 0..10 {
        let properties = BasicProperties::default().with_message_id(id.to_string().into());
        broker.put("q", b"{}", properties).await;
    }
    scene.close_gate();
    let source = Rabbitmq::nodes(node.url()).unwrap().source("q").drain_budget(Duration::from_millis(100));
    let running = scene.start(source.clone());
    scene.entered(1).await;
    eventually("the channel is closed", async || scene.trouble().contains("PRECONDITION_FAILED")).await;
    scene.open_gate();
    scene.effects_become(10).await;
    scene.drain(running, &broker, &source).await;
    let mut effects = scene.effects().await;
    effects.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(effects, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
}
