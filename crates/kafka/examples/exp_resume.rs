#![allow(missing_docs, clippy::unwrap_used, unreachable_pub)]
use rdkafka::consumer::*;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::*;
use rdkafka::topic_partition_list::*;
use rdkafka::{ClientConfig, Message};
use std::time::{Duration, Instant};
fn main() {
    let mock = MockCluster::new(1).unwrap();
    let brokers = std::env::var("ONCEBOX_TEST_KAFKA").unwrap_or_else(|_| mock.bootstrap_servers());
    let topic = format!("expr{}", std::process::id());
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
    for i in 0..20000 {
        p.send(BaseRecord::<[u8], [u8]>::to(&topic).partition(0).payload(format!("{i}").as_bytes()))
            .ok()
            .unwrap();
    }
    p.flush(Duration::from_secs(20)).unwrap();
    for mode in ["resume", "resume+seek", "seek+resume", "reassign"] {
        let c: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .set("group.id", "g")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "100")
            .set("fetch.queue.backoff.ms", "2")
            .set("queued.min.messages", "2000")
            .create()
            .unwrap();
        let mut l = TopicPartitionList::new();
        l.add_partition_offset(&topic, 0, Offset::Offset(0)).unwrap();
        let t0 = Instant::now();
        c.assign(&l).unwrap();
        let mut next = 0;
        let mut first = None;
        let mut doubled = 0;
        let mut lost = 0;
        let mut lat = vec![];
        while next < 20000 {
            for _ in 0..1000 {
                if let Some(Ok(m)) = c.poll(Duration::from_millis(100)) {
                    if m.offset() > next {
                        lost += 1;
                    }
                    if m.offset() < next {
                        doubled += 1;
                    }
                    next = m.offset() + 1;
                    first.get_or_insert(t0.elapsed());
                    if next == 20000 {
                        break;
                    }
                }
            }
            if next == 20000 {
                break;
            }
            if mode != "reassign" {
                c.pause(&l).unwrap();
            } else {
                c.unassign().unwrap();
            }
            let tp = Instant::now();
            while tp.elapsed() < Duration::from_millis(60) {
                if let Some(Ok(m)) = c.poll(Duration::from_millis(5)) {
                    println!("while paused {}", m.offset());
                    next = m.offset() + 1;
                }
            }
            let mut at = TopicPartitionList::new();
            at.add_partition_offset(&topic, 0, Offset::Offset(next)).unwrap();
            let t = Instant::now();
            match mode {
                "resume" => c.resume(&l).unwrap(),
                "resume+seek" => {
                    c.resume(&l).unwrap();
                    c.seek_partitions(at, Duration::from_secs(1)).unwrap();
                }
                "seek+resume" => {
                    c.seek_partitions(at, Duration::from_secs(1)).unwrap();
                    c.resume(&l).unwrap();
                }
                _ => {
                    c.assign(&at).unwrap();
                }
            }
            let m = c.poll(Duration::from_secs(5)).unwrap().unwrap();
            lat.push(t.elapsed().as_millis());
            if m.offset() > next {
                lost += 1;
            }
            if m.offset() < next {
                doubled += 1;
            }
            next = m.offset() + 1;
        }
        println!("{mode}: first {first:?} lost {lost} doubled {doubled} resume latencies ms {lat:?}");
    }
}
