//! A position belongs to a log: another log under the same name stops the partition, whatever its length. On a real broker.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use oncebox_core::inbox::StartPolicy;
use oncebox_core::source::LogId;
use oncebox_kafka::{Kafka, KafkaSource};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use support::logs::Logs;
use support::memory::Memory;
use support::produce::{Sender, commit};
use support::topics::{Topics, brokers, unique};
use support::{Running, eventually};

/// A topic of one partition, and what was made of it.
struct Case {
    logs: Logs,
    topics: Topics,
    topic: String,
    group: String,
    memory: Memory,
}

impl Case {
    async fn new() -> Self {
        let case = Self {
            logs: Logs::install(),
            topics: Topics::new(),
            topic: unique("log"),
            group: unique("g"),
            memory: Memory::default(),
        };
        case.topics.create(&case.topic, 1, &[]).await;
        case
    }

    /// With so many messages that a consumer has read.
    async fn read(messages: usize) -> Self {
        let case = Self::new().await;
        case.send(messages);
        let running = case.start();
        eventually("all messages", || case.memory.count() == messages).await;
        running.stop().await;
        case
    }

    fn send(&self, messages: usize) {
        let sender = Sender::to(&brokers());
        sender.send_numbered(&self.topic, 0, messages);
        sender.flush();
    }

    async fn make_anew(&self) {
        self.topics.delete(&self.topic).await;
        self.topics.create(&self.topic, 1, &[]).await;
    }

    fn source(&self) -> KafkaSource {
        Kafka::brokers(brokers()).source([self.topic.as_str()]).group(&self.group)
    }

    fn start(&self) -> Running {
        Running::start("c", &self.memory, self.source())
    }

    fn way_out(&self, to: &str) -> String {
        format!("oncebox position move --consumer c --topic {} --partition 0 --to {to}", self.topic)
    }

    fn position(&self) -> Option<i64> {
        self.memory.position(&self.topic, 0)
    }
}

/// Waits until the partition stands still for this reason.
async fn stopped(running: &Running, reason: &str) {
    eventually(reason, || running.problems().iter().any(|p| p.contains(reason))).await;
}

fn says(running: &Running, text: &str) {
    assert!(running.problems().iter().any(|p| p.contains(text)), "{text}: {:?}", running.problems());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_anew_while_nobody_reads_stops_the_partition_and_an_operator_lets_it_go_on() {
    let case = Case::read(50).await;
    let log = case.memory.stored(&case.topic, 0).log.unwrap();
    assert!(log.as_str().split('/').all(|part| part.len() == 22), "cluster id and topic id: {log}");
    case.make_anew().await;
    case.send(200);

    let running = case.start();
    stopped(&running, "the position 50 belongs to another log").await;
    says(&running, &case.way_out("earliest"));
    says(&running, &case.way_out("latest"));
    assert_eq!((case.memory.count(), case.position()), (50, Some(50)), "nothing is applied");

    // What the command does. The process that stands still sees it.
    case.memory.change_position(&case.topic, 0, |position| {
        position.epoch += 1;
        position.next = Some(0);
        position.floor = Some(0);
        (position.log, position.mark) = (None, None);
    });
    // The ids are coordinates: those of the new log are new, although the same offsets were applied before.
    eventually("all messages of the new log", || case.memory.count() == 250).await;
    running.stop().await;
    let is = case.memory.stored(&case.topic, 0).log.unwrap();
    assert!(is.contradicts(&log), "{is}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_anew_under_a_running_consumer_stops_the_partition_if_it_is_shorter() {
    let case = Case::new().await;
    case.send(50);
    let running = case.start();
    eventually("all messages", || case.memory.count() == 50).await;
    case.make_anew().await;
    case.send(10);
    stopped(&running, "belongs to another log").await;
    says(&running, &case.way_out("earliest"));
    running.stop().await;
    assert_eq!((case.memory.count(), case.position()), (50, Some(50)));
}

/// The hard case: librdkafka goes on in the new log as if nothing had happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_anew_under_a_running_consumer_stops_the_partition_if_it_is_longer() {
    let case = Case::new().await;
    case.send(50);
    let running = case.start();
    eventually("all messages", || case.memory.count() == 50).await;
    case.make_anew().await;
    case.send(200);
    stopped(&running, "belongs to another log").await;
    says(&running, &case.way_out("earliest"));
    let applied = case.memory.count();
    case.send(10);
    running.stop().await;
    assert_eq!(case.memory.count(), applied, "nothing more is applied");

    let again = case.start();
    stopped(&again, "belongs to another log").await;
    again.stop().await;
    assert_eq!(case.memory.count(), applied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_behind_the_same_address_stops_the_partition() {
    let case = Case::read(50).await;
    case.send(50);
    let is = case.memory.stored(&case.topic, 0).log.unwrap();
    let was = format!("another-cluster/{}", is.as_str().split('/').next_back().unwrap());
    case.memory.change_position(&case.topic, 0, |position| position.log = Some(LogId::new(was.clone())));
    let running = case.start();
    stopped(&running, &format!("that was {was}, now it is {is}")).await;
    running.stop().await;
    assert_eq!(case.memory.count(), 50);
}

/// The ids are the same, but other messages stand there: a log that lost its end and was written on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_was_rewritten_stops_the_partition() {
    let case = Case::read(50).await;
    case.send(2_000);
    case.memory.change_position(&case.topic, 0, |position| {
        let mark = position.mark.as_mut().unwrap();
        assert_eq!(mark.offset, 49, "the last settled record");
        mark.digest += 1;
    });
    let running = case.start();
    stopped(&running, "the log was written anew: another message stands at 49").await;
    says(&running, &case.way_out("earliest"));
    running.stop().await;
    assert_eq!((case.memory.count(), case.position()), (50, Some(50)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_has_expired_does_not_stop() {
    let case = Case::read(50).await;
    case.send(50);
    case.topics.cut(&case.topic, 0, 50).await;
    case.memory.change_position(&case.topic, 0, |position| position.mark.as_mut().unwrap().digest += 1);
    let running = case.start();
    eventually("the rest", || case.memory.count() == 100).await;
    assert!(running.problems().is_empty(), "{:?}", running.problems());
    running.stop().await;
}

/// A place without a record, as compaction leaves it: here the marker of a transaction stands there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_was_compacted_away_does_not_stop() {
    let case = Case::new().await;
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers())
        .set("transactional.id", unique("t"))
        .create()
        .unwrap();
    let wait = Duration::from_secs(20);
    producer.init_transactions(wait).unwrap();
    producer.begin_transaction().unwrap();
    for _ in 0..5 {
        producer.send(BaseRecord::<str, str>::to(&case.topic).payload("x")).map_err(|(e, _)| e).unwrap();
    }
    producer.commit_transaction(wait).unwrap();
    // The broker answers before the marker stands in the topic, the first time long before.
    let end = || producer.client().fetch_watermarks(&case.topic, 0, wait).unwrap().1;
    eventually("the marker", || end() == 6).await;
    case.memory.change_position(&case.topic, 0, |position| {
        position.next = Some(6);
        position.mark = Some(oncebox_core::source::LogMark { offset: 5, digest: 1 });
    });
    case.send(10);
    let running = case.start();
    eventually("the rest", || case.memory.count() == 10).await;
    running.stop().await;
    assert_eq!(case.memory.offsets(&case.topic, 0), (6..16).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_a_position_stops_with_both_ways_out() {
    let case = Case::new().await;
    case.send(100);
    commit(&brokers(), &case.group, &case.topic, 0, 60);
    let running = case.start();
    stopped(&running, "the group has committed offset 60").await;
    says(&running, "start = \"group\"");
    says(&running, &case.way_out("earliest"));
    running.stop().await;
    assert_eq!(case.memory.count(), 0);

    let running =
        Running::start_with("c", &case.memory, case.source(), |settings| settings.start = StartPolicy::Group);
    eventually("what the group has not read", || case.memory.count() == 40).await;
    running.stop().await;
    assert_eq!(case.memory.offsets(&case.topic, 0), (60..100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_committed_ahead_of_the_position_is_reported_and_not_followed() {
    let case = Case::read(50).await;
    case.send(50);
    commit(&brokers(), &case.group, &case.topic, 0, 80);
    let running = case.start();
    eventually("the rest", || case.memory.count() == 100).await;
    running.stop().await;
    assert_eq!(case.memory.offsets(&case.topic, 0), (0..100).collect::<Vec<_>>());
    let command = format!("{} --accept-loss", case.way_out("80"));
    let texts = ["the offset 80 that is committed", "reading begins at 50", &command];
    assert!(case.logs.has_line(&texts), "the warning names both offsets and the command");
}
