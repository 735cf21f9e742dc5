//! Many partitions of a real broker.

#![allow(clippy::unwrap_used)]

mod support;

use oncebox_kafka::Kafka;
use support::memory::Memory;
use support::produce::Sender;
use support::topics::{Topics, brokers, unique};
use support::{Running, eventually};

/// All of them begin, those with messages and those without; the messages are applied, and the position of an idle one is written
/// down too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_partitions_begin() {
    const PARTITIONS: i32 = 300;
    let (brokers, topics, topic, consumer) = (brokers(), Topics::new(), unique("many"), unique("c"));
    topics.create(&topic, PARTITIONS, &[]).await;
    let sender = Sender::to(&brokers);
    for partition in (0..PARTITIONS).step_by(7) {
        sender.send_numbered(&topic, partition, 3);
    }
    sender.flush();
    let memory = Memory::default();
    let running = Running::start(&consumer, &memory, Kafka::brokers(&brokers).source([topic.as_str()]));
    let begun = || (0..PARTITIONS).filter(|p| memory.position(&topic, *p).is_some()).count();
    eventually("all have begun", || begun() == 300).await;
    let sent = 3 * (0..PARTITIONS).step_by(7).count();
    eventually("what was there is applied", || memory.count() == sent).await;
    // One that was idle until now, and whose bell was never rung.
    sender.send_numbered(&topic, PARTITIONS - 1, 5);
    sender.flush();
    eventually("what comes later is applied", || memory.offsets(&topic, PARTITIONS - 1).len() == 5).await;
    assert!(running.problems().is_empty(), "{:?}", running.problems());
    running.stop().await;
    topics.delete(&topic).await;
}
