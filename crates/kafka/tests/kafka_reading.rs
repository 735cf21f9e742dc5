//! Reading from a real broker: codecs, transactions, rebalances, and the questions of `admin`.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use oncebox_kafka::Kafka;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use support::memory::Memory;
use support::produce::{Sender, committed};
use support::topics::{Topics, brokers, unique};
use support::{Running, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_codec_can_be_read() {
    support::init_logs();
    const EACH: usize = 2_000;
    let (brokers, topics, topic) = (brokers(), Topics::new(), unique("codecs"));
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    topics.create(&topic, codecs.len() as i32, &[]).await;
    for (partition, codec) in codecs.iter().enumerate() {
        let sender = Sender::with(&brokers, &[("compression.type", codec)]);
        sender.send_numbered(&topic, partition as i32, EACH);
        sender.flush();
    }
    let memory = Memory::default();
    let running =
        Running::start("c", &memory, Kafka::brokers(&brokers).source([topic.as_str()]).group(unique("g")));
    eventually("all records", || memory.count() == codecs.len() * EACH).await;
    running.stop().await;
    for record in memory.records() {
        assert_eq!(record.payload.as_deref(), Some(record.offset.to_string().as_bytes()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_transactions_are_not_read() {
    support::init_logs();
    let (brokers, topics, topic) = (brokers(), Topics::new(), unique("txn"));
    topics.create(&topic, 1, &[]).await;
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("transactional.id", unique("t"))
        .create()
        .unwrap();
    let wait = Duration::from_secs(20);
    producer.init_transactions(wait).unwrap();
    for round in 0..10 {
        producer.begin_transaction().unwrap();
        let payload = if round % 2 == 0 { "good" } else { "bad" };
        for _ in 0..5 {
            producer.send(BaseRecord::<str, str>::to(&topic).payload(payload)).map_err(|(e, _)| e).unwrap();
        }
        producer.flush(wait).unwrap();
        if round % 2 == 0 {
            producer.commit_transaction(wait).unwrap();
        } else {
            producer.abort_transaction(wait).unwrap();
        }
    }
    let memory = Memory::default();
    let running =
        Running::start("c", &memory, Kafka::brokers(&brokers).source([topic.as_str()]).group(unique("g")));
    eventually("the committed records", || memory.count() >= 25).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    running.stop().await;
    assert!(memory.records().iter().all(|r| r.payload.as_deref() == Some(b"good".as_slice())));
    assert_eq!(memory.count(), 25);
}

/// Members come and go under load. Every record is applied once and in order.
async fn members_come_and_go(strategy: &str) {
    support::init_logs();
    const EACH: usize = 20_000;
    let (brokers, topics, topic, group) = (brokers(), Topics::new(), unique("moves"), unique("g"));
    topics.create(&topic, 6, &[]).await;
    let memory = Memory::default();
    memory.get().pace = Duration::from_millis(5);
    let kafka = Kafka::brokers(&brokers)
        .property("partition.assignment.strategy", strategy)
        .property("heartbeat.interval.ms", "200");
    let start = || {
        let source = kafka.source([topic.as_str()]).group(&group);
        Running::start_with("c", &memory, source, |s| s.batch.messages = 20)
    };
    let mut members = vec![start()];
    let sender = Sender::to(&brokers);
    for partition in 0..6 {
        sender.send_numbered(&topic, partition, EACH);
    }
    sender.flush();
    for round in 0..4 {
        let seen = memory.count();
        eventually("progress", || memory.count() > seen + 1_000 || memory.count() == 6 * EACH).await;
        if round == 2 {
            members.remove(0).stop().await;
        } else {
            members.push(start());
        }
    }
    memory.get().pace = Duration::ZERO;
    eventually("all records", || memory.count() >= 6 * EACH).await;
    for member in members {
        member.stop().await;
    }
    for partition in 0..6 {
        assert_eq!(memory.offsets(&topic, partition), (0..EACH as i64).collect::<Vec<_>>());
        // A commit that meets a rebalance is refused, so it may be behind, but never ahead.
        assert!(committed(&brokers, &group, &topic, partition) <= Some(EACH as i64));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go_with_cooperative_rebalances() {
    members_come_and_go("cooperative-sticky").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go_with_eager_rebalances() {
    members_come_and_go("roundrobin").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_added_later_are_read() {
    support::init_logs();
    let (brokers, topics, topic) = (brokers(), Topics::new(), unique("grows"));
    topics.create(&topic, 1, &[]).await;
    let memory = Memory::default();
    let kafka = Kafka::brokers(&brokers).property("topic.metadata.refresh.interval.ms", "500");
    let running = Running::start("c", &memory, kafka.source([topic.as_str()]).group(unique("g")));
    let sender = Sender::to(&brokers);
    sender.send_numbered(&topic, 0, 10);
    sender.flush();
    eventually("the first partition", || memory.count() == 10).await;
    topics.grow(&topic, 3).await;
    let sender = Sender::to(&brokers);
    sender.send_numbered(&topic, 2, 10);
    sender.flush();
    eventually("the new partition", || memory.offsets(&topic, 2).len() == 10).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_can_be_asked() {
    let (brokers, topics, topic, group) = (brokers(), Topics::new(), unique("asked"), unique("g"));
    topics
        .create(&topic, 2, &[("retention.ms", "3600000"), ("message.timestamp.type", "LogAppendTime")])
        .await;
    let sender = Sender::to(&brokers);
    sender.send_numbered(&topic, 1, 30);
    sender.flush();
    support::produce::commit(&brokers, &group, &topic, 1, 10);

    let admin = Kafka::brokers(&brokers).admin(Duration::from_secs(10)).unwrap();
    assert!(!admin.cluster().await.unwrap().brokers.is_empty());
    assert_eq!(admin.partitions(&topic).await.unwrap(), Some(2));
    assert_eq!(admin.partitions("no-such-topic").await.unwrap(), None);
    let settings = admin.topic_settings(&topic).await.unwrap();
    assert_eq!(settings.retention, Some(Duration::from_secs(3_600)));
    assert_eq!(
        (settings.cleanup_policy.as_str(), settings.timestamp_type.as_str()),
        ("delete", "LogAppendTime")
    );
    let lag = admin.lag(&group, std::slice::from_ref(&topic)).await.unwrap();
    let seen: Vec<_> = lag.iter().map(|l| (l.partition, l.low, l.high, l.committed)).collect();
    assert_eq!(seen, [(0, 0, 0, None), (1, 0, 30, Some(10))]);
    assert_eq!(lag[1].behind(10), 20);
    let ids = admin.log_ids(&[topic.clone(), "no-such-topic".to_owned()]).await.unwrap();
    assert_eq!(ids.keys().collect::<Vec<_>>(), [&topic]);
    let id = ids[&topic].clone().unwrap();
    assert!(id.as_str().split('/').all(|part| part.len() == 22), "{id}");
    let ends = admin.watermarks(&topic).await.unwrap().unwrap();
    assert_eq!(
        ends.iter().map(|w| (w.partition, w.low, w.high)).collect::<Vec<_>>(),
        [(0, 0, 0), (1, 0, 30)]
    );
    assert_eq!(admin.watermarks("no-such-topic").await.unwrap(), None);
    let since = |ms| admin.offsets_for_time(&topic, &[0, 1], ms);
    assert_eq!(since(0).await.unwrap(), [(0, None), (1, Some(0))].into());
    assert_eq!(since(i64::MAX).await.unwrap(), [(0, None), (1, None)].into());
    let error = admin.lag(&group, &["no-such-topic".to_owned()]).await.unwrap_err().to_string();
    assert!(error.contains("no-such-topic"), "{error}");
}
