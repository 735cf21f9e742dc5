//! Records on their way from a broker to the engine, against librdkafka's own mock of a cluster.

#![allow(clippy::unwrap_used)]

mod support;

use oncebox_kafka::Kafka;
use rdkafka::message::{Header, OwnedHeaders};
use support::memory::Memory;
use support::mock::cluster;
use support::produce::Sender;
use support::{Running, eventually, tiny};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_arrive_whole_and_in_order() {
    let (_cluster, brokers) = cluster(1);
    let sender = Sender::to(&brokers);
    let headers = OwnedHeaders::new()
        .insert(Header { key: "twice", value: Some(b"1".as_slice()) })
        .insert(Header { key: "twice", value: Some([0xff, 0xfe].as_slice()) })
        .insert(Header { key: "absent", value: None::<&[u8]> });
    sender.send("t", 0, Some(b"k"), Some(b"v"), Some(headers));
    sender.send("t", 0, Some(b"k"), None, None);
    sender.send("t", 0, None, Some(b"no key"), None);
    sender.send("t", 0, Some(b""), Some(b""), None);
    sender.flush();

    let memory = Memory::default();
    let running = Running::start("c", &memory, Kafka::brokers(&brokers).source(["t"]));
    eventually("four records", || memory.count() >= 4).await;
    running.stop().await;

    let records = memory.records();
    assert_eq!(records.iter().map(|r| r.offset).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(records[0].key.as_deref(), Some(b"k".as_slice()));
    assert_eq!(records[0].payload.as_deref(), Some(b"v".as_slice()));
    let headers: Vec<_> = records[0].headers.iter().collect();
    let expected: [(&str, Option<&[u8]>); 3] =
        [("twice", Some(b"1")), ("twice", Some(&[0xff, 0xfe])), ("absent", None)];
    assert_eq!(headers, expected);
    assert!(records[0].timestamp_ms.is_some());
    assert_eq!(records[1].payload, None, "a tombstone stays one");
    assert_eq!(records[2].key, None);
    assert_eq!(records[3].key.as_deref(), Some(b"".as_slice()), "empty is not absent");
    assert_eq!(records[3].payload.as_deref(), Some(b"".as_slice()));
    assert_eq!(support::produce::committed(&brokers, "c", "t", 0), Some(4));
}

/// Streams that hold ten messages: each partition is paused and resumed over and over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_when_streams_fill_up() {
    const EACH: usize = 10_000;
    let (_cluster, brokers) = cluster(2);
    let sender = Sender::to(&brokers);
    for partition in 0..2 {
        sender.send_numbered("t", partition, EACH);
    }
    sender.flush();

    let memory = Memory::default();
    // Slower than the reader's patience every now and then, so that it pauses for real.
    let running = Running::start_with("c", &memory, Kafka::brokers(&brokers).source(["t"]), tiny);
    for stall in 1..=5 {
        eventually("progress", || memory.count() >= stall * EACH / 8).await;
        memory.get().pace = std::time::Duration::from_millis(120);
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        memory.get().pace = std::time::Duration::ZERO;
    }
    eventually("all records", || memory.count() >= 2 * EACH).await;
    running.stop().await;
    for partition in 0..2 {
        assert_eq!(memory.offsets("t", partition), (0..EACH as i64).collect::<Vec<_>>());
    }
}
