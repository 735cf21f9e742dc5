//! Events on their way to a broker, against librdkafka's own mock of a cluster.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use oncebox_core::outbox::{Delivery, Sink};
use oncebox_kafka::Kafka;
use support::events::{
    CREATED_MS, all_delivered, assert_numbers_in_order, numbered, outgoing, read_all, stored,
};
use support::mock::cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_arrive_whole() {
    let (_cluster, brokers) = cluster(1);
    let sink = Kafka::brokers(&brokers).sink();

    let mut first = stored("t", 7, Some("k"), Some(b"v".to_vec()));
    first.causation_id = Some("order-1".to_owned());
    first.headers.push("own", Some(Bytes::from_static(&[0xff, 0xfe])));
    first.headers.push("own", None);
    let id = first.id.to_string();
    let tombstone = stored("t", 8, Some("k"), None);
    let bare = stored("t", 9, None, Some(Vec::new()));
    let events: Vec<_> = [first, tombstone, bare].into_iter().map(outgoing).collect();
    all_delivered(&sink.deliver(&events).await.unwrap(), 3);

    let read = read_all(&brokers, "t");
    assert_eq!(read[0].key.as_deref(), Some("k"));
    assert_eq!(read[0].payload.as_deref(), Some(b"v".as_slice()));
    assert_eq!(read[0].timestamp_ms, Some(CREATED_MS));
    assert_eq!(read[0].header("oncebox-id"), Some(id.as_bytes()));
    assert_eq!(read[0].header("ce_id"), Some(id.as_bytes()));
    assert_eq!(read[0].header("ce_type"), Some(b"t".as_slice()));
    assert_eq!(read[0].header("ce_source"), Some(b"test".as_slice()));
    assert_eq!(read[0].header("oncebox-causation-id"), Some(b"order-1".as_slice()));
    let own: Vec<_> = read[0].headers.iter().filter(|(name, _)| name == "own").collect();
    assert_eq!(own[0].1.as_deref(), Some([0xff, 0xfe].as_slice()));
    assert_eq!(own[1].1, None);
    assert_eq!(read[1].payload, None, "a tombstone stays one");
    assert_eq!(read[2].key, None);
    assert_eq!(read[2].payload.as_deref(), Some(b"".as_slice()), "empty is not absent");
}

/// The hashes that Java's own client has in its tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_goes_where_java_would_send_it() {
    const PARTITIONS: i32 = 97;
    let java: [(&str, i32); 6] = [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ];
    let (_cluster, brokers) = cluster(PARTITIONS);
    let events: Vec<_> =
        java.iter().map(|(key, hash)| outgoing(stored("t", i64::from(*hash), Some(key), None))).collect();
    all_delivered(&Kafka::brokers(&brokers).sink().deliver(&events).await.unwrap(), java.len());
    let read = read_all(&brokers, "t");
    for (key, hash) in java {
        let found = read.iter().find(|read| read.key.as_deref() == Some(key)).unwrap();
        assert_eq!(found.partition, (hash & 0x7fff_ffff) % PARTITIONS, "{key}");
    }
}

/// A queue of ten events for batches of a thousand: the sink waits for room and keeps the order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_waited_for() {
    let (_cluster, brokers) = cluster(3);
    let sink = Kafka::brokers(&brokers).property("queue.buffering.max.messages", "10").sink();
    for batch in 0..3 {
        let events = numbered("t", batch * 1_000..(batch + 1) * 1_000);
        all_delivered(&sink.deliver(&events).await.unwrap(), 1_000);
    }
    assert_numbers_in_order(&read_all(&brokers, "t"), 0..3_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_fits_into_no_queue_is_a_configuration_error() {
    let (_cluster, brokers) = cluster(1);
    let sink = Kafka::brokers(&brokers).property("queue.buffering.max.kbytes", "1").sink();
    let event = outgoing(stored("t", 1, None, Some(vec![0; 5_000])));
    let error = sink.deliver(&[event]).await.unwrap_err().to_string();
    assert!(error.contains("queue.buffering.max.kbytes") && error.contains("5000"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_over_our_own_limit_is_given_up_and_its_neighbours_are_not() {
    let (_cluster, brokers) = cluster(1);
    let sink = Kafka::brokers(&brokers).property("message.max.bytes", "10000").sink();
    let mut events = numbered("t", 0..5);
    events.insert(2, outgoing(stored("t", 99, Some("key-0"), Some(vec![b'x'; 20_000]))));
    let deliveries = sink.deliver(&events).await.unwrap();
    let Delivery::Reject { error } = &deliveries[2] else { panic!("{deliveries:?}") };
    assert!(error.contains(&events[2].id().to_string()) && error.contains("message.max.bytes"), "{error}");
    assert_eq!(deliveries.iter().filter(|d| **d == Delivery::Delivered).count(), 5);
    assert_numbers_in_order(&read_all(&brokers, "t"), 0..5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_does_not_exist_is_named_and_not_created() {
    let (cluster, brokers) = cluster(1);
    let sink = Kafka::brokers(&brokers).sink();
    for _ in 0..2 {
        let error = sink.deliver(&numbered("absent", 0..3)).await.unwrap_err().to_string();
        assert!(error.contains("topic absent does not exist") && error.contains("create it"), "{error}");
    }
    cluster.create_topic("absent", 1, 1).unwrap();
    all_delivered(&sink.deliver(&numbered("absent", 0..3)).await.unwrap(), 3);
    assert_numbers_in_order(&read_all(&brokers, "absent"), 0..3);
}

/// One table of properties for source and sink: what is for the other one does no harm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn properties_of_the_source_do_not_disturb_the_sink() {
    let (_cluster, brokers) = cluster(1);
    let kafka = Kafka::brokers(&brokers)
        .property("session.timeout.ms", "6000")
        .property("fetch.max.bytes", "1000000")
        .property("statistics.interval.ms", "100")
        .property("partition.assignment.strategy", "roundrobin");
    all_delivered(&kafka.sink().deliver(&numbered("t", 0..3)).await.unwrap(), 3);
    let refused =
        kafka.property("acks", "1").sink().deliver(&numbered("t", 0..3)).await.unwrap_err().to_string();
    assert!(refused.contains("acks"), "{refused}");
}
