#![allow(missing_docs, clippy::unwrap_used, unreachable_pub)]
#[path = "../tests/support/memory.rs"]
#[allow(dead_code)]
mod memory;
use oncebox_core::selector::Selector;
use oncebox_core::*;
use oncebox_kafka::Kafka;
use std::error::Error;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
static COUNT: AtomicUsize = AtomicUsize::new(0);
static SUM: AtomicI64 = AtomicI64::new(0);
static PACE: AtomicUsize = AtomicUsize::new(0);
#[derive(Clone)]
struct Null;
struct Txn(usize);
impl Deref for Txn {
    type Target = usize;
    fn deref(&self) -> &usize {
        &self.0
    }
}
impl DerefMut for Txn {
    fn deref_mut(&mut self) -> &mut usize {
        &mut self.0
    }
}
impl Store for Null {
    type Conn = usize;
    type Txn = Txn;
    async fn claim(&self, _: &ConsumerName, c: &[Claim<'_>]) -> StoreResult<Claimed<Txn>> {
        Ok(Claimed { txn: Txn(0), fresh: vec![true; c.len()] })
    }
    async fn claim_within(&self, _: &mut usize, _: &ConsumerName, _: &[Claim<'_>]) -> StoreResult<Vec<bool>> {
        Ok(vec![])
    }
    async fn park(&self, _: &mut Txn, _: &ConsumerName, _: &[DeadLetter]) -> StoreResult<()> {
        Ok(())
    }
    async fn parked_keys(&self, _: &mut Txn, _: &PositionKey, _: &[&[u8]]) -> StoreResult<Vec<Vec<u8>>> {
        Ok(vec![])
    }
    async fn purged_before(&self, _: &mut Txn, _: &ConsumerName) -> StoreResult<Option<i64>> {
        Ok(None)
    }
    async fn commit(&self, t: Txn, _: Option<Advance<'_>>) -> StoreResult<()> {
        let p = PACE.load(Relaxed);
        if p > 0 {
            tokio::time::sleep(Duration::from_millis(p as u64)).await;
        }
        COUNT.fetch_add(t.0, Relaxed);
        Ok(())
    }
    async fn rollback(&self, _: Txn) {}
    fn classify(_: &(dyn Error + 'static)) -> ErrorClass {
        ErrorClass::Failed
    }
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        Ok(Ownership { key: key.clone(), epoch: 1, next_offset: None, starts: 1, attempts_recorded: false })
    }
    async fn begin_at(&self, _: &Ownership, _: i64) -> StoreResult<()> {
        Ok(())
    }
    async fn release(&self, _: &Ownership) -> StoreResult<()> {
        Ok(())
    }
    async fn record_attempt(&self, _: &Ownership, _: i64) -> StoreResult<u32> {
        Ok(1)
    }
    async fn take_dead(&self, _: i64) -> StoreResult<Option<(Txn, StoredDeadLetter)>> {
        Ok(None)
    }
}
struct Counting;
impl Apply<Null> for Counting {
    async fn apply(&self, conn: &mut usize, fresh: &[Message]) -> Result<(), Failure> {
        *conn += fresh.len();
        SUM.fetch_add(fresh.iter().map(|m| m.record().offset).sum(), Relaxed);
        Ok(())
    }
}
fn rss() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .find(|l| l.starts_with("VmRSS"))
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}
fn main() {
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    rt.block_on(run());
}
async fn run() {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let brokers = std::env::var("ONCEBOX_TEST_KAFKA").unwrap();
    let get = |n: &str, d: usize| std::env::var(n).ok().map_or(d, |v| v.parse().unwrap());
    let (n, parts, batch) = (get("N", 1_000_000), get("PARTS", 4), get("BATCH", 500));
    PACE.store(get("PACE", 0), Relaxed);
    let topic = std::env::var("TOPIC").unwrap_or_else(|_| format!("thr{}", std::process::id()));
    if std::env::var("TOPIC").is_err() {
        use rdkafka::ClientConfig;
        use rdkafka::admin::*;
        use rdkafka::producer::*;
        let a: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", &brokers).create().unwrap();
        a.create_topics(
            &[NewTopic::new(&topic, parts as i32, TopicReplication::Fixed(1))],
            &AdminOptions::new(),
        )
        .await
        .unwrap();
        let p: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .set("linger.ms", "50")
            .set("batch.size", "500000")
            .set("queue.buffering.max.messages", "3000000")
            .set("queue.buffering.max.kbytes", "2000000")
            .create()
            .unwrap();
        let body = vec![b'x'; get("SIZE", 200)];
        for i in 0..n {
            let k = (i % 1000).to_string();
            while p
                .send(
                    BaseRecord::<[u8], [u8]>::to(&topic)
                        .partition((i % parts) as i32)
                        .key(k.as_bytes())
                        .payload(&body),
                )
                .is_err()
            {
                p.poll(Duration::from_millis(10));
            }
            if i % 1000 == 0 {
                p.poll(Duration::ZERO);
            }
        }
        p.flush(Duration::from_secs(60)).unwrap();
        println!("TOPIC={topic}");
    }
    let mut kafka = Kafka::brokers(&brokers);
    for pair in std::env::var("PROPS").unwrap_or_default().split(';').filter(|s| !s.is_empty()) {
        let (k, v) = pair.split_once('=').unwrap();
        kafka = kafka.property(k, v);
    }
    let mut s = Settings::default();
    s.identity.id = Selector::Coordinates;
    s.batch.messages = batch;
    let stop = CancellationToken::new();
    let worker = Inbox::new(format!("c{}", std::process::id()), Null).unwrap().settings(s).apply(Counting);
    let task = tokio::spawn(worker.serve(kafka.source([topic.clone()]), stop.clone()));
    while COUNT.load(Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (t, c0) = (Instant::now(), COUNT.load(Relaxed));
    let mut max = 0;
    let mut said = Instant::now();
    let cpu = || {
        let s = std::fs::read_to_string("/proc/self/stat").unwrap();
        let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
        f[11].parse::<u64>().unwrap() + f[12].parse::<u64>().unwrap()
    };
    let cpu0 = cpu();
    let limit = get("SECS", 120) as u64;
    while COUNT.load(Relaxed) < n && t.elapsed().as_secs() < limit {
        tokio::time::sleep(Duration::from_millis(5)).await;
        max = max.max(rss());
        if said.elapsed().as_secs() >= 2 {
            said = Instant::now();
            println!("{} rss {} MB", COUNT.load(Relaxed), rss());
        }
    }
    let d = t.elapsed();
    let each = (n / parts) as i64;
    println!(
        "{} msgs in {d:?} = {:.0}/s, sum ok {}, max rss {max} MB, cpu {} ms per 10k",
        COUNT.load(Relaxed),
        (COUNT.load(Relaxed) - c0) as f64 / d.as_secs_f64(),
        SUM.load(Relaxed) == parts as i64 * (each * (each - 1) / 2),
        (cpu() - cpu0) * 10 * 10000 / COUNT.load(Relaxed) as u64
    );
    let t = Instant::now();
    stop.cancel();
    task.await.unwrap();
    println!("stopped in {:?}", t.elapsed());
    let _ = Arc::new(0);
}
