//! What the log says of a trouble: a line when it begins, and one when it is over. Against librdkafka's mock of a cluster. Alone in
//! its process: the log belongs to all of it.

#![allow(clippy::unwrap_used)]

mod support;

use oncebox_kafka::Kafka;
use support::logs::Logs;
use support::memory::Memory;
use support::mock::cluster;
use support::produce::Sender;
use support::{Running, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_trouble_is_logged_once() {
    let logs = Logs::install();
    let (cluster, brokers) = cluster(1);
    let sender = Sender::to(&brokers);
    let memory = Memory::default();
    let kafka = Kafka::brokers(&brokers).property("statistics.interval.ms", "100");
    let running = Running::start("c", &memory, kafka.source(["t"]));
    sender.send_numbered("t", 0, 10);
    sender.flush();
    eventually("the first records", || memory.count() == 10).await;

    let (begins, ends) = ("trouble with the brokers; trying again", "no more trouble with the brokers");
    for round in 1..=2 {
        cluster.broker_down(1).unwrap();
        eventually("the trouble is told", || !running.problems().is_empty()).await;
        cluster.broker_up(1).unwrap();
        eventually("the trouble is over", || running.problems().is_empty()).await;
        assert_eq!((logs.lines(&[begins]).len(), logs.lines(&[ends]).len()), (round, round));
    }
    // Nobody else says it in other words.
    let about_kafka = logs.lines(&["kafka:c"]);
    assert!(about_kafka.is_empty(), "{about_kafka:#?}");
    running.stop().await;
}
