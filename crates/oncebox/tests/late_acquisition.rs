//! A position that somebody else acquired late, while the partition stayed ours, is taken back.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use oncebox::store::Positions;
use std::time::{Duration, Instant};

use oncebox::kafka::Kafka;
use oncebox::message::ConsumerName;
use oncebox::sqlite::SqliteStore;
use oncebox::store::PositionKey;
use oncebox::{Inbox, Message};
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use sqlx::{Connection, SqliteConnection};
use tokio_util::sync::CancellationToken;

async fn record_effect(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    sqlx::query("INSERT INTO effect VALUES (?)").bind(message.id().as_str()).execute(tx).await?;
    Ok(())
}

fn produce(servers: &str, ids: std::ops::Range<u32>) {
    let producer: ThreadedProducer<DefaultProducerContext> =
        ClientConfig::new().set("bootstrap.servers", servers).create().unwrap();
    for id in ids {
        let key = format!("m{id}");
        producer.send(BaseRecord::to("t").key(&key).payload("{}")).map_err(|(e, _)| e).unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
}

async fn effects_become(conn: &mut SqliteConnection, wanted: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM effect").fetch_one(&mut *conn).await.unwrap();
        if found == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{found} effects instead of {wanted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_fenced_but_still_ours_is_taken_over_again() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("test.sqlite").display());
    let store = SqliteStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let mut conn = SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("CREATE TABLE effect (id TEXT)").execute(&mut conn).await.unwrap();
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("t", 1, 1).unwrap();
    let servers = broker.bootstrap_servers();

    let stop = CancellationToken::new();
    let worker = Inbox::new("test", store.clone()).unwrap().each(record_effect);
    let running = tokio::spawn(worker.serve(Kafka::brokers(servers.as_str()).source(["t"]), stop.clone()));
    produce(&servers, 0..10);
    effects_become(&mut conn, 10).await;

    // What a process does whose acquisition was held up until after the partition had moved on.
    let key = PositionKey { consumer: ConsumerName::new("test").unwrap(), topic: "t".into(), partition: 0 };
    store.acquire(&key).await.unwrap();
    produce(&servers, 10..20);
    effects_become(&mut conn, 20).await;
    stop.cancel();
    running.await.unwrap();
}
