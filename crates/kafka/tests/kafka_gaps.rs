//! Messages that are gone before they were read stop their partition, on a real broker.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use oncebox_kafka::Kafka;
use support::memory::Memory;
use support::produce::Sender;
use support::topics::{Topics, brokers, unique};
use support::{Running, eventually, tiny};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_removed_before_the_start_stop_the_partition() {
    support::init_logs();
    let (brokers, topics, topic) = (brokers(), Topics::new(), unique("gap"));
    topics.create(&topic, 2, &[]).await;
    let sender = Sender::to(&brokers);
    sender.send_numbered(&topic, 0, 100);
    sender.send_numbered(&topic, 1, 100);
    sender.flush();
    topics.cut(&topic, 0, 50).await;
    let memory = Memory::default();
    memory.set_position(&topic, 0, 20);
    memory.set_position(&topic, 1, 150);

    let source = Kafka::brokers(&brokers).source([topic.as_str()]).group(unique("g"));
    let running = Running::start("c", &memory, source);
    let says = |text: &str| running.problems().iter().any(|p| p.contains(text));
    eventually("the gap", || says("messages 20..50 were removed")).await;
    eventually("the shorter topic", || says("the topic ends at 100 but everything up to 150")).await;
    assert!(says(&format!("consumer c, topic {topic}, partition 0")), "{:?}", running.problems());
    let way_out = format!("oncebox position move --consumer c --topic {topic} --partition 0 --to 50");
    assert!(says(&way_out), "{:?}", running.problems());
    assert_eq!(memory.count(), 0);
    running.stop().await;
}

/// What was fetched ahead is still applied; the gap behind it stops the partition. The other partition goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_removed_while_reading_stop_only_their_partition() {
    support::init_logs();
    let (brokers, topics, topic) = (brokers(), Topics::new(), unique("cut"));
    topics.create(&topic, 2, &[]).await;
    let sender = Sender::to(&brokers);
    for _ in 0..2_000 {
        sender.send(&topic, 0, None, Some(&[b'x'; 10_000]), None);
    }
    sender.flush();
    let memory = Memory::default();
    memory.get().pace = Duration::from_millis(100);
    let source = Kafka::brokers(&brokers).source([topic.as_str()]).group(unique("g"));
    let running = Running::start_with("c", &memory, source, tiny);
    eventually("the first messages", || memory.count() > 10).await;
    topics.cut(&topic, 0, 1_900).await;
    memory.get().pace = Duration::ZERO;
    let gap = "..1900 were removed from the topic before they were applied";
    eventually("the gap", || running.problems().iter().any(|p| p.contains(gap))).await;

    sender.send_numbered(&topic, 1, 10);
    sender.flush();
    eventually("the other partition", || memory.offsets(&topic, 1).len() == 10).await;
    running.stop().await;
    let offsets = memory.offsets(&topic, 0);
    assert!(offsets.len() < 1_900);
    assert_eq!(offsets, (0..offsets.len() as i64).collect::<Vec<_>>());
}
