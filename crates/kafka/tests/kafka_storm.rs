//! A group that never comes to rest, on a real broker: members join and leave in the middle of everything.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use oncebox_kafka::Kafka;
use support::memory::Memory;
use support::produce::{Sender, committed};
use support::topics::{Topics, brokers, unique};
use support::{Running, eventually};

const PARTITIONS: i32 = 6;

/// How long the storm lasts; more in `ONCEBOX_TEST_STORM_SECONDS`.
fn storm() -> Duration {
    let seconds = std::env::var("ONCEBOX_TEST_STORM_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(8))
}

async fn survive(strategy: &str) {
    support::init_logs();
    let (brokers, topics, topic, group) = (brokers(), Topics::new(), unique("storm"), unique("g"));
    topics.create(&topic, PARTITIONS, &[]).await;
    let memory = Memory::default();
    memory.get().pace = Duration::from_millis(5);
    let kafka = Kafka::brokers(&brokers)
        .property("partition.assignment.strategy", strategy)
        .property("heartbeat.interval.ms", "100");
    let start = || {
        let source = kafka.source([topic.as_str()]).group(&group).commit_interval(Duration::from_millis(50));
        Running::start_with("c", &memory, source, |s| s.batch.messages = 20)
    };
    let sender = Sender::to(&brokers);
    let (began, mut sent) = (Instant::now(), 0);
    let mut members = vec![start()];
    let mut turn = 0_u64;
    while began.elapsed() < storm() {
        for partition in 0..PARTITIONS {
            sender.send_numbered(&topic, partition, 200);
        }
        sent += 200;
        sender.flush();
        // Not random, so that a failure can be had again; but never in step with the group.
        turn += 1;
        tokio::time::sleep(Duration::from_millis(20 + (turn * 7_919) % 400)).await;
        if members.len() < 2 || (members.len() < 4 && !turn.is_multiple_of(3)) {
            members.push(start());
        } else {
            members.remove(turn as usize % members.len()).stop().await;
        }
        for partition in 0..PARTITIONS {
            let ahead = committed(&brokers, &group, &topic, partition) > memory.position(&topic, partition);
            assert!(!ahead, "committed at the broker before it was in the database");
        }
    }
    memory.get().pace = Duration::ZERO;
    eventually("all records", || memory.count() >= sent * PARTITIONS as usize).await;
    for member in members {
        member.stop().await;
    }
    for partition in 0..PARTITIONS {
        assert_eq!(memory.offsets(&topic, partition), (0..sent as i64).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cooperative() {
    survive("cooperative-sticky").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eager() {
    survive("range").await;
}
