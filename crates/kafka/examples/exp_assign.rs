#![allow(missing_docs, clippy::unwrap_used, unreachable_pub)]
use rdkafka::client::ClientContext;
use rdkafka::consumer::*;
use rdkafka::error::KafkaError;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::*;
use rdkafka::topic_partition_list::*;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientConfig, Message};
use std::sync::Mutex;
use std::time::{Duration, Instant};
struct Ctx(Offset, Mutex<Vec<String>>);
impl ClientContext for Ctx {
    fn error(&self, e: KafkaError, r: &str) {
        self.1.lock().unwrap().push(format!("ERR {e:?} {r}"));
    }
}
impl ConsumerContext for Ctx {
    fn rebalance(&self, c: &BaseConsumer<Self>, err: RDKafkaRespErr, tpl: &mut TopicPartitionList) {
        if err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            tpl.set_all_offsets(self.0).unwrap();
            c.incremental_assign(tpl).unwrap();
            if std::env::var("SLOW").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
            c.pause(tpl).unwrap();
            self.1.lock().unwrap().push(format!("assigned {tpl:?}"));
        } else {
            c.incremental_unassign(tpl).unwrap();
        }
    }
}
fn run(brokers: &str, topic: &str, at: Offset) {
    let g = format!("g{:?}{}", at, Instant::now().elapsed().as_nanos()).replace(['(', ')'], "-")
        + &std::process::id().to_string();
    let c: BaseConsumer<Ctx> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", g)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("fetch.wait.max.ms", "100")
        .create_with_context(Ctx(at, Mutex::default()))
        .unwrap();
    c.subscribe(&[topic]).unwrap();
    let t = Instant::now();
    let mut early = 0;
    let mut assigned_at = None;
    while assigned_at.is_none_or(|a: Instant| a.elapsed() < Duration::from_secs(2)) {
        assert!(t.elapsed() < Duration::from_secs(20));
        match c.poll(Duration::from_millis(20)) {
            Some(Ok(_)) => early += 1,
            Some(Err(e)) => println!("  poll err {e:?}"),
            None => {}
        }
        if assigned_at.is_none() && c.context().1.lock().unwrap().iter().any(|s| s.starts_with("assigned")) {
            assigned_at = Some(Instant::now());
            // immediate seek test
            let mut l = TopicPartitionList::new();
            l.add_partition_offset(topic, 0, Offset::Offset(50)).unwrap();
            if std::env::var("NOW").is_ok() {
                println!(
                    "  seek now: {:?}",
                    c.seek_partitions(l, Duration::from_secs(1)).map(|l| l.elements()[0].error())
                );
                break;
            }
        }
    }
    println!(
        "{at:?}: early {early} notes {:?} position {:?}",
        c.context().1.lock().unwrap(),
        c.position().unwrap().elements()[0].offset()
    );
    let mut l = TopicPartitionList::new();
    l.add_partition_offset(topic, 0, Offset::Offset(50)).unwrap();
    if std::env::var("NOW").is_err() {
        println!(
            "  seek: {:?}",
            c.seek_partitions(l.clone(), Duration::from_secs(1)).map(|l| l.elements()[0].error())
        );
    }
    c.resume(&l).unwrap();
    let t = Instant::now();
    let mut got = vec![];
    let mut first = None;
    while t.elapsed() < Duration::from_secs(2) {
        match c.poll(Duration::from_millis(20)) {
            Some(Ok(m)) => {
                if m.partition() == 0 {
                    first.get_or_insert(t.elapsed());
                    got.push(m.offset())
                }
            }
            Some(Err(e)) => println!("  poll err {e:?}"),
            None => {}
        }
    }
    println!("  got {} first {:?} last {:?} first after {first:?}", got.len(), got.first(), got.last());
}
fn main() {
    let mock = MockCluster::new(1).unwrap();
    let brokers = std::env::var("ONCEBOX_TEST_KAFKA").unwrap_or_else(|_| mock.bootstrap_servers());
    let topic = format!("exp{}", std::process::id());
    if std::env::var("ONCEBOX_TEST_KAFKA").is_err() {
        mock.create_topic(&topic, 1, 1).unwrap();
    } else {
        use rdkafka::admin::*;
        let a: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", &brokers).create().unwrap();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(
                a.create_topics(
                    &[NewTopic::new(&topic, 1, TopicReplication::Fixed(1))],
                    &AdminOptions::new(),
                ),
            )
            .unwrap();
    }
    let p: BaseProducer = ClientConfig::new().set("bootstrap.servers", &brokers).create().unwrap();
    for i in 0..1000 {
        p.send(BaseRecord::<[u8], [u8]>::to(&topic).partition(0).payload(format!("{i}").as_bytes()))
            .ok()
            .unwrap();
    }
    p.flush(Duration::from_secs(20)).unwrap();
    for at in [Offset::Invalid, Offset::Beginning, Offset::End, Offset::Offset(0), Offset::Offset(5000)] {
        run(&brokers, &topic, at);
    }
}
