//! What the metrics say about a real broker.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use oncebox_kafka::Kafka;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use support::gauges::Gauges;
use support::memory::Memory;
use support::produce::Sender;
use support::topics::{Topics, brokers, unique};
use support::{Running, eventually};

/// A transaction ends with a marker that has an offset and is no message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_reaches_zero_behind_a_transaction() {
    let gauges = Gauges::install();
    let (brokers, topics, topic, consumer) = (brokers(), Topics::new(), unique("marker"), unique("c"));
    topics.create(&topic, 1, &[]).await;
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("transactional.id", unique("t"))
        .create()
        .unwrap();
    let wait = Duration::from_secs(20);
    producer.init_transactions(wait).unwrap();
    producer.begin_transaction().unwrap();
    for _ in 0..50 {
        producer.send(BaseRecord::<str, str>::to(&topic).payload("x")).map_err(|(e, _)| e).unwrap();
    }
    producer.commit_transaction(wait).unwrap();

    let memory = Memory::default();
    memory.get().pace = Duration::from_millis(300);
    let kafka = Kafka::brokers(&brokers).property("statistics.interval.ms", "200");
    let running = Running::start_with(&consumer, &memory, kafka.source([topic.as_str()]), support::tiny);
    let lag = || gauges.of(&consumer, "oncebox_lag_messages");
    eventually("the lag is seen", || lag() > Some(10.0)).await;
    memory.get().pace = Duration::ZERO;
    eventually("no lag", || memory.count() == 50 && lag() == Some(0.0)).await;
    // Or retention could remove the marker and leave what looks like a gap.
    eventually("the position is past the marker", || memory.position(&topic, 0) == Some(51)).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_partitions_are_counted() {
    let gauges = Gauges::install();
    let (brokers, topics, topic, consumer) = (brokers(), Topics::new(), unique("stopped"), unique("c"));
    topics.create(&topic, 2, &[]).await;
    let sender = Sender::to(&brokers);
    sender.send_numbered(&topic, 0, 10);
    sender.flush();
    let memory = Memory::default();
    memory.set_position(&topic, 1, 99);
    let running = Running::start(&consumer, &memory, Kafka::brokers(&brokers).source([topic.as_str()]));
    eventually("one stands still", || gauges.of(&consumer, "oncebox_partitions_stopped") == Some(1.0)).await;
    eventually("the other does not", || memory.count() == 10).await;
    running.stop().await;
}
