//! A position belongs to a log: what librdkafka's mock of a cluster can show, such as brokers that tell no ids.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox_kafka::{Kafka, KafkaSource};
use rdkafka::types::RDKafkaApiKey;
use support::memory::Memory;
use support::mock::{Cluster, cluster};
use support::produce::Sender;
use support::{Running, eventually};

fn filled(messages: usize) -> (Cluster, String) {
    let (cluster, brokers) = cluster(1);
    send(&brokers, messages);
    (cluster, brokers)
}

fn send(brokers: &str, messages: usize) {
    let sender = Sender::to(brokers);
    sender.send_numbered("t", 0, messages);
    sender.flush();
}

/// A group of its own each time: the mock lets nobody into a group that was left before a session timeout is over.
fn source(brokers: &str) -> KafkaSource {
    static RUN: AtomicUsize = AtomicUsize::new(0);
    Kafka::brokers(brokers).source(["t"]).group(format!("g{}", RUN.fetch_add(1, Ordering::Relaxed)))
}

async fn read(brokers: &str, memory: &Memory, messages: usize) {
    let running = Running::start("c", memory, source(brokers));
    eventually("all messages", || memory.count() == messages).await;
    running.stop().await;
}

async fn refused(brokers: &str, memory: &Memory, reason: &str) {
    let running = Running::start("c", memory, source(brokers));
    eventually(reason, || running.problems().iter().any(|p| p.contains(reason))).await;
    let way_out = "oncebox position move --consumer c --topic t --partition 0 --to earliest";
    assert!(running.problems().iter().any(|p| p.contains(way_out)), "{:?}", running.problems());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_with_the_same_topic_stops_the_partition() {
    let ((_one, first), (_two, second)) = (filled(50), filled(200));
    let memory = Memory::default();
    read(&first, &memory, 50).await;
    refused(&second, &memory, "the position 50 belongs to another log").await;
    assert_eq!(memory.count(), 50);
}

/// Where a broker is too old for topic ids, the last settled record is what a log is recognised by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_topic_ids_the_last_settled_record_is_compared() {
    let (cluster, brokers) = filled(50);
    cluster.apiversion(RDKafkaApiKey::Metadata, Some(0), Some(9)).unwrap();
    let memory = Memory::default();
    read(&brokers, &memory, 50).await;
    let log = memory.stored("t", 0).log.unwrap();
    assert!(log.as_str().len() > 1 && log.as_str().ends_with('/'), "a cluster id and no topic id: {log}");
    send(&brokers, 10);
    read(&brokers, &memory, 60).await;
    memory.change_position("t", 0, |position| position.mark.as_mut().unwrap().digest += 1);
    refused(&brokers, &memory, "another message stands at 59").await;
    assert_eq!(memory.count(), 60);
}
