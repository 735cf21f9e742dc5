//! Until when a partition is caught up: told by where the log ends, on a real broker.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, SystemTime};

use oncebox_kafka::Kafka;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use support::memory::Memory;
use support::produce::Sender;
use support::topics::{Topics, brokers, unique};
use support::{Running, eventually};

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_caught_up_when_its_end_is_reached_whatever_the_producers_clock_says() {
    let (brokers, topics, topic) = (brokers(), Topics::new(), unique("ends"));
    topics.create(&topic, 2, &[]).await;
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", &brokers).create().unwrap();
    let ten_years_ago = now_ms() - 10 * 365 * 86_400_000;
    for _ in 0..10 {
        let record = BaseRecord::<str, str>::to(&topic).partition(0).payload("x").timestamp(ten_years_ago);
        producer.send(record).map_err(|(e, _)| e).unwrap();
    }
    producer.flush(Duration::from_secs(20)).unwrap();
    let (memory, began) = (Memory::default(), now_ms());
    let running =
        Running::start("c", &memory, Kafka::brokers(&brokers).source([topic.as_str()]).group(unique("g")));
    eventually("all messages", || memory.count() == 10).await;
    let caught_up = |partition| memory.stored(&topic, partition).caught_up_ms;
    eventually("both are caught up, also the empty one", || caught_up(0).is_some() && caught_up(1).is_some())
        .await;
    for partition in 0..2 {
        let caught_up = caught_up(partition).unwrap();
        assert!((began..=now_ms()).contains(&caught_up), "{began} {caught_up}");
    }
    running.stop().await;
}

/// Messages of a transaction that is still open are in the log and cannot be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_not_caught_up_behind_an_open_transaction() {
    let (brokers, topics, topic) = (brokers(), Topics::new(), unique("open"));
    topics.create(&topic, 1, &[]).await;
    let sender = Sender::to(&brokers);
    sender.send_numbered(&topic, 0, 10);
    sender.flush();
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("transactional.id", unique("t"))
        .create()
        .unwrap();
    let wait = Duration::from_secs(20);
    producer.init_transactions(wait).unwrap();
    producer.begin_transaction().unwrap();
    for _ in 0..5 {
        producer.send(BaseRecord::<str, str>::to(&topic).payload("x")).map_err(|(e, _)| e).unwrap();
    }
    producer.flush(wait).unwrap();

    let memory = Memory::default();
    let running =
        Running::start("c", &memory, Kafka::brokers(&brokers).source([topic.as_str()]).group(unique("g")));
    eventually("what can be read", || memory.count() == 10).await;
    // The ends are asked for half a second after the beginning.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(memory.stored(&topic, 0).caught_up_ms, None);
    assert_eq!(memory.position(&topic, 0), Some(10));
    producer.commit_transaction(wait).unwrap();
    let committed = now_ms();
    eventually("the transaction", || memory.count() == 15).await;
    eventually("caught up", || memory.stored(&topic, 0).caught_up_ms.is_some()).await;
    eventually("past the marker", || memory.position(&topic, 0) == Some(16)).await;
    assert!(memory.stored(&topic, 0).caught_up_ms < Some(committed + 60_000));
    running.stop().await;
}
