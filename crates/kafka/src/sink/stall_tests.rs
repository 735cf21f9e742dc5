//! Partitions without a leader, against librdkafka's mock of a cluster. Here, because nobody else can make the sink impatient.

use std::time::{Duration, Instant};

use oncebox_core::outbox::{Delivery, OutgoingEvent, Sink};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, Producer as _};
use rdkafka::types::RDKafkaApiKey;

use super::KafkaSink;
use super::batch::tests::event;
use crate::settings::Kafka;

const STALL: Duration = Duration::from_secs(2);

/// By Java's hash these keys go to the partitions 0 and 1 of two.
const HEALTHY: &str = "foobar";
const LEADERLESS: [&str; 2] = ["abc", "a-little-bit-longer-string"];

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// A topic whose second partition has no leader, and a sink that has published to both before.
async fn leaderless(configure: impl FnOnce(Kafka) -> Kafka) -> (Cluster, KafkaSink) {
    let cluster = MockCluster::new(1).expect("a cluster");
    cluster.create_topic("t", 2, 1).expect("a topic");
    // From version 10 on the mock would name the leader that there is not, and crash.
    cluster.apiversion(RDKafkaApiKey::Produce, Some(0), Some(9)).expect("an older version");
    let sink = KafkaSink::with_stall(configure(Kafka::brokers(cluster.bootstrap_servers())), STALL);
    deliver_all(&sink, &[event(0, Some(HEALTHY)), event(1, Some(LEADERLESS[0]))]).await;
    cluster.partition_leader("t", 1, None).expect("no leader");
    (cluster, sink)
}

async fn deliver_all(sink: &KafkaSink, events: &[OutgoingEvent]) {
    let deliveries = sink.deliver(events).await.expect("published");
    assert_eq!(deliveries, vec![Delivery::Delivered; events.len()]);
}

/// How many records each partition has.
async fn counts(sink: &KafkaSink) -> [i64; 2] {
    let leased = sink.pool.lease("t").await.expect("a producer");
    [0, 1].map(|partition| {
        let wait = Duration::from_secs(10);
        leased.producer().client().client().fetch_watermarks("t", partition, wait).expect("watermarks").1
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_without_a_leader_holds_up_its_own_keys_only() {
    let (cluster, sink) = leaderless(|kafka| kafka).await;
    let keys = [HEALTHY, LEADERLESS[0], HEALTHY, LEADERLESS[0], LEADERLESS[1]];
    let events: Vec<_> = (2..).zip(keys).map(|(seq, key)| event(seq, Some(key))).collect();
    let started = Instant::now();
    let deliveries = sink.deliver(&events).await.expect("partly published");
    assert!((STALL..STALL * 3).contains(&started.elapsed()), "took {:?}", started.elapsed());
    use Delivery::{Behind, Delivered, Retry};
    let [Delivered, Retry { error, after: None }, Delivered, Behind, Retry { .. }] = &deliveries[..] else {
        panic!("{deliveries:?}");
    };
    assert!(error.contains("3 of 5 events to t were not confirmed: no confirmation for 2 s"), "{error}");

    cluster.partition_leader("t", 1, Some(1)).expect("a leader");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(counts(&sink).await, [3, 1], "what was given up is not sent later");
    let undecided = [1, 3, 4].map(|at| events[at].clone());
    deliver_all(&sink, &undecided).await;
    assert_eq!(counts(&sink).await, [3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_which_nothing_is_confirmed_is_an_error() {
    // So small a queue that most events do not even get there.
    let (cluster, sink) = leaderless(|kafka| kafka.property("queue.buffering.max.messages", "10")).await;
    let events: Vec<_> = (2..32).map(|seq| event(seq, Some(LEADERLESS[0]))).collect();
    let error = sink.deliver(&events).await.expect_err("not published").to_string();
    assert!(error.contains("30 of 30 events to t were not confirmed: no confirmation for 2 s"), "{error}");
    cluster.partition_leader("t", 1, Some(1)).expect("a leader");
    deliver_all(&sink, &events).await;
    assert_eq!(counts(&sink).await, [1, 31]);
}
