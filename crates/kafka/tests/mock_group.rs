//! Groups: where reading begins, rebalances, commits, brokers that go away. Against librdkafka's mock of a cluster.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use oncebox_core::inbox::StartPolicy;
use oncebox_kafka::Kafka;
use support::memory::Memory;
use support::mock::cluster;
use support::produce::{Sender, commit, commit_with, committed, committed_note};
use support::{Running, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_goes_on_at_the_lower_of_position_and_committed_offset() {
    let (_cluster, brokers) = cluster(2);
    let sender = Sender::to(&brokers);
    sender.send_numbered("t", 0, 100);
    sender.send_numbered("t", 1, 100);
    sender.flush();
    let memory = Memory::default();
    // The database was restored to an older state; an operator rewound the group.
    memory.set_position("t", 0, 40);
    commit(&brokers, "c", "t", 0, 60);
    memory.set_position("t", 1, 80);
    commit(&brokers, "c", "t", 1, 70);

    let running = Running::start("c", &memory, Kafka::brokers(&brokers).source(["t"]));
    eventually("the rest", || memory.count() >= 60 + 30).await;
    running.stop().await;
    assert_eq!(memory.offsets("t", 0), (40..100).collect::<Vec<_>>());
    assert_eq!(memory.offsets("t", 1), (70..100).collect::<Vec<_>>());
    assert_eq!(committed(&brokers, "c", "t", 0), Some(100));
}

/// Whoever sets an offset by other means than oncebox can be told from a commit that did not get through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_that_somebody_else_has_set_back_is_told_from_our_own() {
    let (_cluster, brokers) = cluster(1);
    let sender = Sender::to(&brokers);
    sender.send_numbered("t", 0, 30);
    sender.flush();
    let source = || Kafka::brokers(&brokers).source(["t"]);
    let new = Memory::default();
    let running = Running::start("new", &new, source());
    eventually("all of them", || new.position("t", 0) == Some(30)).await;
    running.stop().await;
    let ours = committed_note(&brokers, "new", "t", 0);
    assert!(!ours.is_empty(), "oncebox says who it is");

    // The database is ahead of what is committed.
    for (consumer, note, rewound_to) in [("ours", ours.as_str(), None), ("theirs", "", Some(25))] {
        let memory = Memory::default();
        memory.change_position("t", 0, |position| {
            (position.next, position.settled_to) = (Some(25), Some(25));
        });
        commit_with(&brokers, consumer, "t", 0, 12, note);
        let running = Running::start(consumer, &memory, source());
        eventually("the rest", || memory.count() == 18 && memory.position("t", 0) == Some(30)).await;
        running.stop().await;
        assert_eq!(memory.offsets("t", 0), (12..30).collect::<Vec<_>>());
        assert_eq!(memory.stored("t", 0).rewound_to, rewound_to, "{consumer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_consumer_begins_where_it_is_told_to() {
    let (_cluster, brokers) = cluster(1);
    let sender = Sender::to(&brokers);
    sender.send_numbered("t", 0, 10);
    sender.flush();
    let (latest, fail) = (Memory::default(), Memory::default());
    let source = |group: &str| Kafka::brokers(&brokers).source(["t"]).group(group);
    let at_the_end = Running::start_with("c", &latest, source("g1"), |s| s.start = StartPolicy::Latest);
    let refusing = Running::start_with("c", &fail, source("g2"), |s| s.start = StartPolicy::Fail);
    eventually("the end is known", || latest.position("t", 0) == Some(10)).await;
    sender.send_numbered("t", 0, 1);
    sender.flush();
    eventually("the new record", || latest.count() == 1).await;
    eventually("the refusal", || refusing.problems().iter().any(|p| p.contains("start = \"fail\""))).await;
    at_the_end.stop().await;
    refusing.stop().await;
    assert_eq!(latest.offsets("t", 0), [10]);
    assert_eq!(fail.count(), 0);
}

/// The group changes under load, with work in flight each time. Nothing is lost, and what an owner has settled the next one
/// does not see again: that is what the drain is for.
async fn rebalances(strategy: &str) {
    const EACH: usize = 3_000;
    let (_cluster, brokers) = cluster(4);
    let sender = Sender::to(&brokers);
    for partition in 0..4 {
        sender.send_numbered("t", partition, EACH);
    }
    sender.flush();
    let memory = Memory::default();
    memory.get().pace = Duration::from_millis(20);
    let kafka = Kafka::brokers(&brokers)
        .property("partition.assignment.strategy", strategy)
        .property("session.timeout.ms", "6000")
        .property("heartbeat.interval.ms", "200");
    let bounds = |s: &mut oncebox_core::inbox::Settings| s.batch.messages = 2;
    let first = Running::start_with("c", &memory, kafka.source(["t"]), bounds);
    eventually("the first has begun", || memory.count() > 100).await;
    let second = Running::start_with("c", &memory, kafka.source(["t"]), bounds);
    let epochs = |memory: &Memory| memory.get().positions.values().map(|p| p.epoch).sum::<i64>();
    eventually("partitions have moved", || epochs(&memory) > 4).await;
    let seen = memory.count();
    eventually("both go on", || memory.count() > seen + 200).await;
    first.stop().await;
    memory.get().pace = Duration::ZERO;
    eventually("all records", || memory.count() >= 4 * EACH).await;
    second.stop().await;
    for partition in 0..4 {
        let offsets = memory.offsets("t", partition);
        assert_eq!(offsets, (0..EACH as i64).collect::<Vec<_>>(), "in order, once, through two rebalances");
        assert_eq!(committed(&brokers, "c", "t", partition), Some(EACH as i64));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cooperative_rebalances_keep_order_and_lose_nothing() {
    rebalances("cooperative-sticky").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eager_rebalances_keep_order_and_lose_nothing() {
    rebalances("range").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_was_away_is_seen_and_survived() {
    let (cluster, brokers) = cluster(1);
    let sender = Sender::to(&brokers);
    sender.send_numbered("t", 0, 10);
    sender.flush();
    let memory = Memory::default();
    let kafka = Kafka::brokers(&brokers).property("statistics.interval.ms", "500");
    let running = Running::start("c", &memory, kafka.source(["t"]));
    eventually("the first records", || memory.count() == 10).await;
    cluster.broker_down(1).unwrap();
    eventually("the problem", || running.problems().iter().any(|p| p.starts_with("kafka:c"))).await;
    cluster.broker_up(1).unwrap();
    sender.send_numbered("t", 0, 10);
    sender.flush();
    eventually("the rest", || memory.count() == 20).await;
    eventually("no problem", || running.problems().is_empty()).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_not_there_is_a_visible_problem_until_it_is() {
    let (cluster, brokers) = cluster(1);
    // The mock makes topics up when asked for them, unless told that this one is unknown.
    let unknown = rdkafka::types::RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error("t", unknown).unwrap();
    let memory = Memory::default();
    // A refresh while the group forms makes the member join anew, and the mock then waits for the session to time out.
    let kafka = Kafka::brokers(&brokers)
        .property("topic.metadata.refresh.interval.ms", "1300")
        .property("session.timeout.ms", "6000");
    let running = Running::start("c", &memory, kafka.source(["t"]));
    eventually("the problem", || running.problems().iter().any(|p| p.contains("UnknownTopicOrPartition")))
        .await;
    cluster.topic_error("t", rdkafka::types::RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    let sender = Sender::to(&brokers);
    sender.send_numbered("t", 0, 10);
    sender.flush();
    eventually("the records", || memory.count() == 10).await;
    eventually("no problem", || running.problems().is_empty()).await;
    running.stop().await;
}
