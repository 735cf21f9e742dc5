//! What is told of leaders and of the group, and until when. Against librdkafka's mock of a cluster, which ends the process when a
//! partition that is fetched loses its leader: that is tested on real brokers.

#![allow(clippy::unwrap_used)]

mod support;

use oncebox_kafka::{Kafka, TopicGate};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::memory::Memory;
use support::mock::cluster;
use support::produce::Sender;
use support::{Running, eventually};

fn tells(running: &Running, words: &[&str]) -> bool {
    running.problems().iter().any(|p| p.starts_with("kafka:c") && words.iter().all(|word| p.contains(word)))
}

fn member(running: &Running) -> Option<bool> {
    running.monitor.report().iter().find_map(|l| l.member)
}

/// The first five of six partitions have no leader: the sixth begins all the same, and flows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_begins_beside_others_without_a_leader() {
    let (cluster, brokers) = cluster(6);
    let sender = Sender::to(&brokers);
    for partition in 0..6 {
        sender.send_numbered("t", partition, 10);
    }
    sender.flush();
    for partition in 0..5 {
        cluster.partition_leader("t", partition, None).unwrap();
    }
    let memory = Memory::default();
    let kafka = Kafka::brokers(&brokers).property("statistics.interval.ms", "200");
    let running = Running::start("c", &memory, kafka.source(["t"]));
    eventually("the one with a leader", || memory.offsets("t", 5).len() == 10).await;
    eventually("the others are told", || {
        tells(&running, &["cannot begin: t/0, t/1, t/2 and 2 more: no broker leads it"])
    })
    .await;
    sender.send_numbered("t", 5, 10);
    sender.flush();
    eventually("it flows", || memory.offsets("t", 5).len() == 20).await;
    assert_eq!(memory.count(), 20);
    for partition in 0..5 {
        cluster.partition_leader("t", partition, Some(1)).unwrap();
    }
    eventually("all records", || memory.count() == 70).await;
    eventually("no problem", || running.problems().is_empty()).await;
    running.stop().await;
}

/// A topic stands still as long as it is not let through, and says why; the other one flows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_begins_when_its_gate_is_open() {
    let (cluster, brokers) = cluster(2);
    cluster.create_topic("u", 1, 1).unwrap();
    let sender = Sender::to(&brokers);
    for (topic, partition) in [("t", 0), ("t", 1), ("u", 0)] {
        sender.send_numbered(topic, partition, 10);
    }
    sender.flush();
    let (memory, gate) = (Memory::default(), TopicGate::default());
    gate.open("u");
    let source = Kafka::brokers(&brokers).source(["t", "u"]).gate(gate.clone());
    let running = Running::start("c", &memory, source);
    gate.asked().await;
    eventually("the one that is open", || memory.offsets("u", 0).len() == 10).await;
    gate.refuse("t", "kept too long");
    eventually("the reason", || tells(&running, &["cannot begin: t/0, t/1: kept too long"])).await;
    assert_eq!(memory.count(), 10, "nothing of the other one");
    gate.open("t");
    eventually("all records", || memory.count() == 30).await;
    eventually("no problem", || running.problems().is_empty()).await;
    running.stop().await;
}

/// The group refuses us several times: that is told from the first time on until we are in, through all statistics in between.
async fn refused(error: RDKafkaRespErr, words: &[&str]) {
    let (cluster, brokers) = cluster(1);
    let sender = Sender::to(&brokers);
    sender.send_numbered("t", 0, 10);
    sender.flush();
    cluster.request_errors(RDKafkaApiKey::JoinGroup, &[error; 4]);
    let memory = Memory::default();
    let kafka = Kafka::brokers(&brokers).property("statistics.interval.ms", "50");
    let running = Running::start("c", &memory, kafka.source(["t"]));
    eventually("the refusal is told", || tells(&running, words)).await;
    eventually("it is told until we are a member", || {
        // In this order: who is let in is a member before the trouble is over.
        let told = tells(&running, words);
        let member = member(&running);
        assert!(told || member == Some(true), "{member:?} {:?}", running.problems());
        member == Some(true)
    })
    .await;
    eventually("the records", || memory.count() == 10).await;
    eventually("no problem", || running.problems().is_empty()).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_with_another_strategy_is_told() {
    let words = ["group c cannot be joined", "InconsistentGroupProtocol", "partition.assignment.strategy"];
    refused(RDKafkaRespErr::RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL, &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_session_timeout_is_told() {
    let words = ["group c cannot be joined", "InvalidSessionTimeout", "session.timeout.ms"];
    refused(RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT, &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_on_the_group_is_told() {
    let words = ["group c cannot be joined", "GroupAuthorizationFailed", "Grant Read on the group"];
    refused(RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, &words).await;
}
