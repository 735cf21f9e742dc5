//! What goes wrong around a running reader, and how it goes on. Against librdkafka's mock of a cluster.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use oncebox_kafka::Kafka;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::memory::Memory;
use support::mock::cluster;
use support::produce::Sender;
use support::{Running, eventually};

/// Something accepts connections and never answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_never_answers_does_not_hold_up_the_end() {
    support::init_logs();
    let black_hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let brokers = black_hole.local_addr().unwrap().to_string();
    let memory = Memory::default();
    let source = Kafka::brokers(&brokers).source(["t"]).drain_budget(Duration::from_secs(1));
    let running = Running::start("c", &memory, source);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = Instant::now();
    running.stop().await;
    assert!(asked.elapsed() < Duration::from_secs(13), "took {:?}", asked.elapsed());
}

/// The broker is gone for good while work is in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_gone_does_not_hold_up_the_end() {
    let (cluster, brokers) = cluster(1);
    let sender = Sender::to(&brokers);
    sender.send_numbered("t", 0, 5_000);
    sender.flush();
    let memory = Memory::default();
    memory.get().pace = Duration::from_millis(100);
    let source = Kafka::brokers(&brokers).source(["t"]).drain_budget(Duration::from_secs(1));
    let running = Running::start_with("c", &memory, source, support::tiny);
    eventually("the first records", || memory.count() > 0).await;
    cluster.broker_down(1).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = Instant::now();
    running.stop().await;
    assert!(asked.elapsed() < Duration::from_secs(13), "took {:?}", asked.elapsed());
}

/// The coordinator forgets the member: its partitions are lost without a question. It joins again and goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_assignment_is_taken_up_again() {
    let (cluster, brokers) = cluster(2);
    let sender = Sender::to(&brokers);
    sender.send_numbered("t", 0, 2_000);
    sender.flush();
    let memory = Memory::default();
    memory.get().pace = Duration::from_millis(10);
    let kafka = Kafka::brokers(&brokers)
        .property("heartbeat.interval.ms", "100")
        .property("session.timeout.ms", "3000");
    let running = Running::start_with("c", &memory, kafka.source(["t"]), support::tiny);
    eventually("the first records", || memory.count() > 50).await;
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID;
    cluster.request_errors(RDKafkaApiKey::Heartbeat, &[unknown]);
    eventually("the new epoch", || memory.get().positions.values().any(|p| p.epoch > 1)).await;
    memory.get().pace = Duration::ZERO;
    eventually("all records", || memory.count() >= 2_000).await;
    running.stop().await;
    assert_eq!(memory.offsets("t", 0), (0..2_000).collect::<Vec<_>>());
}

/// Another process has the same name. To come back at once would throw that one out in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_replaced_says_so_and_stands_still() {
    let (cluster, brokers) = cluster(1);
    let sender = Sender::to(&brokers);
    sender.send_numbered("t", 0, 10);
    sender.flush();
    let memory = Memory::default();
    let kafka = Kafka::brokers(&brokers)
        .property("group.instance.id", "one")
        .property("heartbeat.interval.ms", "100")
        .property("session.timeout.ms", "3000");
    let running = Running::start("c", &memory, kafka.source(["t"]));
    eventually("the first records", || memory.count() == 10).await;
    let fenced = RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    cluster.request_errors(RDKafkaApiKey::Heartbeat, &[fenced]);
    let said = "same group.instance.id: give each process its own";
    eventually("the problem", || running.problems().iter().any(|p| p.contains(said))).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reserved_property_is_named() {
    let memory = Memory::default();
    let kafka = Kafka::brokers("127.0.0.1:1").property("auto.offset.reset", "latest");
    let running = Running::start("c", &memory, kafka.source(["t"]));
    eventually("the problem", || running.problems().iter().any(|p| p.contains("auto.offset.reset"))).await;
    running.stop().await;
}
