//! What goes wrong while events are published, and how it goes on. Against librdkafka's mock of a cluster.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use oncebox_core::outbox::{Delivery, Sink};
use oncebox_kafka::Kafka;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::events::{
    all_delivered, assert_first_copies_in_order, assert_numbers_in_order, numbered, read_all,
};
use support::eventually;
use support::mock::cluster;

/// Connections break while requests are in flight: everything is sent again, in order. The mock does not tell copies apart
/// by their sequence as a broker does, so there may be some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_lose_nothing_and_keep_the_order() {
    use RDKafkaRespErr::{RD_KAFKA_RESP_ERR__TRANSPORT as BROKEN, RD_KAFKA_RESP_ERR_NO_ERROR as FINE};
    let (cluster, brokers) = cluster(3);
    let sink = Kafka::brokers(&brokers).property("batch.num.messages", "50").sink();
    all_delivered(&sink.deliver(&numbered("t", 0..10)).await.unwrap(), 10);
    let errors = [FINE, BROKEN, FINE, FINE, BROKEN, FINE, FINE, BROKEN, BROKEN];
    cluster.request_errors(RDKafkaApiKey::Produce, &errors);
    all_delivered(&sink.deliver(&numbered("t", 10..2_000)).await.unwrap(), 1_990);
    assert_first_copies_in_order(&read_all(&brokers, "t"), 0..2_000);
}

/// Replicas that are away are no reason to give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_away_are_waited_for() {
    let (cluster, brokers) = cluster(1);
    let sink = Kafka::brokers(&brokers).sink();
    let missing = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
    cluster.request_errors(RDKafkaApiKey::Produce, &[missing; 3]);
    all_delivered(&sink.deliver(&numbered("t", 0..1)).await.unwrap(), 1);
    assert_numbers_in_order(&read_all(&brokers, "t"), 0..1);
}

/// The broker is away when the batch begins: it waits, and goes out soon after the broker is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_away_is_waited_for() {
    let (cluster, brokers) = cluster(1);
    let sink = std::sync::Arc::new(Kafka::brokers(&brokers).sink());
    all_delivered(&sink.deliver(&numbered("t", 0..10)).await.unwrap(), 10);
    cluster.broker_down(1).unwrap();
    let waiting = tokio::spawn({
        let sink = std::sync::Arc::clone(&sink);
        async move { sink.deliver(&numbered("t", 10..20)).await.unwrap() }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished(), "there is nobody to confirm");
    cluster.broker_up(1).unwrap();
    all_delivered(&waiting.await.unwrap(), 10);
    assert_numbers_in_order(&read_all(&brokers, "t"), 0..20);
}

/// Errors after which a producer is given up: the batch is an error, the next one works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_comes_back_after_a_fatal_error() {
    use RDKafkaRespErr::{
        RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
    };
    let fatal = [
        RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
        RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
    ];
    for code in fatal {
        let (cluster, brokers) = cluster(1);
        let sink = Kafka::brokers(&brokers).property("batch.num.messages", "10").sink();
        all_delivered(&sink.deliver(&numbered("t", 0..10)).await.unwrap(), 10);
        cluster.request_errors(RDKafkaApiKey::Produce, &[code]);
        let error = sink.deliver(&numbered("t", 10..200)).await.unwrap_err().to_string();
        assert!(error.contains("events to t were not confirmed"), "{code:?}: {error}");
        all_delivered(&sink.deliver(&numbered("t", 10..200)).await.unwrap(), 190);
        assert_first_copies_in_order(&read_all(&brokers, "t"), 0..200);
    }
}

/// A record batch that is refused is sent again in smaller parts: nobody is given up for a neighbour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_of_a_refused_event_are_published() {
    let (cluster, brokers) = cluster(1);
    let sink = Kafka::brokers(&brokers).property("linger.ms", "50").sink();
    all_delivered(&sink.deliver(&numbered("t", 0..10)).await.unwrap(), 10);
    let large = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.request_errors(RDKafkaApiKey::Produce, &[large, large]);
    all_delivered(&sink.deliver(&numbered("t", 10..200)).await.unwrap(), 190);
    assert_first_copies_in_order(&read_all(&brokers, "t"), 0..200);

    cluster.request_errors(RDKafkaApiKey::Produce, &[large]);
    let deliveries = sink.deliver(&numbered("t", 200..201)).await.unwrap();
    assert!(matches!(&deliveries[..], [Delivery::Reject { .. }]), "alone, it is to blame: {deliveries:?}");
    all_delivered(&sink.deliver(&numbered("t", 200..300)).await.unwrap(), 100);
    assert_first_copies_in_order(&read_all(&brokers, "t"), 0..300);
}

/// A relay that lost its lease drops the batch: what was not sent must not appear later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_is_not_sent_later_and_other_batches_go_on() {
    let (cluster, brokers) = cluster(1);
    cluster.create_topic("u", 1, 1).unwrap();
    let sink = std::sync::Arc::new(Kafka::brokers(&brokers).sink());
    let deliver = |topic: &'static str, numbers: std::ops::Range<i64>| {
        let sink = std::sync::Arc::clone(&sink);
        tokio::spawn(async move { sink.deliver(&numbered(topic, numbers)).await })
    };
    all_delivered(&deliver("t", 0..10).await.unwrap().unwrap(), 10);
    all_delivered(&deliver("u", 0..10).await.unwrap().unwrap(), 10);
    cluster.broker_down(1).unwrap();
    let (dropped, kept) = (deliver("t", 10..500), deliver("u", 10..500));
    tokio::time::sleep(Duration::from_millis(500)).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    cluster.broker_up(1).unwrap();
    all_delivered(&kept.await.unwrap().unwrap(), 490);
    assert_numbers_in_order(&read_all(&brokers, "u"), 0..500);
    all_delivered(&deliver("t", 500..501).await.unwrap().unwrap(), 1);
    let read: Vec<i64> = read_all(&brokers, "t").iter().map(support::events::Read::number).collect();
    assert_eq!(read, (0..10).chain([500]).collect::<Vec<_>>());
}

/// Dropped half-way, with requests in flight and most of the batch still waiting: only what was in flight may arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_batch_that_is_dropped_half_way_only_the_beginning_is_there() {
    const IN_FLIGHT: usize = 5 * 10;
    let (cluster, brokers) = cluster(1);
    let kafka = Kafka::brokers(&brokers)
        .property("batch.num.messages", "10")
        .property("queue.buffering.max.messages", "500");
    let sink = std::sync::Arc::new(kafka.sink());
    all_delivered(&sink.deliver(&numbered("t", 0..1)).await.unwrap(), 1);
    cluster.broker_round_trip_time(1, Duration::from_millis(200)).unwrap();
    let dropped = tokio::spawn({
        let sink = std::sync::Arc::clone(&sink);
        async move { sink.deliver(&numbered("t", 1..1_000)).await }
    });
    tokio::time::sleep(Duration::from_millis(700)).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    let at_once = read_all(&brokers, "t").len();
    all_delivered(&sink.deliver(&numbered("t", 5_000..5_001)).await.unwrap(), 1);
    let read: Vec<i64> = read_all(&brokers, "t").iter().map(support::events::Read::number).collect();
    assert!(read.len() <= at_once + IN_FLIGHT + 1, "{} after {at_once}", read.len());
    assert_eq!(read.last(), Some(&5_000));
    assert_eq!(read[..read.len() - 1], (0..read.len() as i64 - 1).collect::<Vec<_>>());
}

/// More batches at once than there are producers: they take turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_take_turns() {
    let (_cluster, brokers) = cluster(4);
    let sink = std::sync::Arc::new(Kafka::brokers(&brokers).sink());
    let batches: Vec<_> = (0..12)
        .map(|batch| {
            let sink = std::sync::Arc::clone(&sink);
            tokio::spawn(async move { sink.deliver(&numbered("t", batch * 100..(batch + 1) * 100)).await })
        })
        .collect();
    for batch in batches {
        all_delivered(&batch.await.unwrap().unwrap(), 100);
    }
    assert_eq!(read_all(&brokers, "t").len(), 1_200);
}

/// Something accepts connections and never answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_never_answers_does_not_hold_up_the_end() {
    support::init_logs();
    let black_hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = Kafka::brokers(black_hole.local_addr().unwrap().to_string()).sink();
    let error = sink.deliver(&numbered("t", 0..10)).await.unwrap_err().to_string();
    assert!(error.contains("whether topic t exists"), "{error}");
    let asked = Instant::now();
    drop(sink);
    assert!(asked.elapsed() < Duration::from_secs(1), "took {:?}", asked.elapsed());
}

/// A broker that goes away with events on their way does not hold up the end either, and its producers end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_gone_does_not_hold_up_the_end() {
    let (cluster, brokers) = cluster(1);
    let sink = std::sync::Arc::new(Kafka::brokers(&brokers).sink());
    all_delivered(&sink.deliver(&numbered("t", 0..10)).await.unwrap(), 10);
    cluster.broker_down(1).unwrap();
    let waiting = tokio::spawn({
        let sink = std::sync::Arc::clone(&sink);
        async move { sink.deliver(&numbered("t", 10..20)).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let asked = Instant::now();
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(sink);
    assert!(asked.elapsed() < Duration::from_secs(1), "took {:?}", asked.elapsed());
    eventually("the producers' end", || !threads().iter().any(|name| name == "oncebox-kafka-e")).await;
}

/// The names of the threads of this process, cut to fifteen letters by the system.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(|task| name(task.ok()?)).map(|name| name.trim().to_owned()).collect()
}
