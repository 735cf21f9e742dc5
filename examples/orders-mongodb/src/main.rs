//! An order service on MongoDB, written in two ways and killed in the same places:
//! `cargo run -p example-orders-mongodb -- 'mongodb://127.0.0.1:27017/?replicaSet=rs0'`.
//!
//! Commands come from a topic and become orders; each order is told to others as `order.created`. The broker is part of this
//! program; MongoDB is not. `cargo xtask services` starts one and prints its URL as ONCEBOX_TEST_MONGODB, which is read too.
//!
//! - `two_step.rs`: insert the id, then run the business logic, catch the duplicate key. A process that dies in between has said
//!   that it did what it did not do: the order is lost, and no redelivery brings it back.
//! - `service.rs`: the same with oncebox.

mod crash;
mod order;
mod service;
mod two_step;

use std::collections::BTreeSet;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::order::{COMMANDS, CREATED, Order};

const ORDERS: usize = 120;
/// Each run of a service dies in the middle of its so many-th order; the last one lives.
const CRASHES: [u32; 4] = [7, 23, 41, 12];

#[tokio::main]
async fn main() -> oncebox::Result<ExitCode> {
    // The child: one of the two services.
    if let (Ok(way), Ok(url), Ok(brokers), Ok(end)) = (
        std::env::var("ORDERS_WAY"),
        std::env::var("ORDERS_URL"),
        std::env::var("ORDERS_BROKERS"),
        std::env::var("ORDERS_END"),
    ) {
        let end = end.parse()?;
        let limit = Duration::from_secs(120);
        match way.as_str() {
            "two-step" => tokio::time::timeout(limit, two_step::run(&url, &brokers, end)).await??,
            _ => tokio::time::timeout(limit, service::run(&url, &brokers, end)).await??,
        }
        return Ok(ExitCode::SUCCESS);
    }

    let Some(server) = std::env::args().nth(1).or_else(|| std::env::var("ONCEBOX_TEST_MONGODB").ok()) else {
        eprintln!(
            "this example needs a MongoDB replica set: give its URL, such as mongodb://127.0.0.1:27017/?replicaSet=rs0, or run \
             `cargo xtask services` and set the variable ONCEBOX_TEST_MONGODB that it prints"
        );
        return Ok(ExitCode::from(2));
    };
    println!("{ORDERS} orders, one in five commanded twice; each service dies {} times\n", CRASHES.len());
    println!("{:<26} {:>8} {:>8}", "", "two-step", "oncebox");
    let (broken, ours) = (outcome("two-step", &server).await?, outcome("oncebox", &server).await?);
    for (what, broken, ours) in [
        ("orders in the database", broken.orders, ours.orders),
        ("  lost", broken.lost, ours.lost),
        ("  made twice", broken.doubled, ours.doubled),
        ("orders told to others", broken.told, ours.told),
    ] {
        println!("{what:<26} {broken:>8} {ours:>8}");
    }
    let good = ours.orders == ORDERS && ours.lost == 0 && ours.doubled == 0 && ours.told == ORDERS;
    println!("\n{}", if good { "with oncebox every order was made once" } else { "oncebox failed" });
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What became of the orders.
struct Outcome {
    orders: usize,
    lost: usize,
    doubled: usize,
    told: usize,
}

/// Runs one of the services through its crashes, with a broker and a database of its own.
async fn outcome(way: &str, server: &str) -> oncebox::Result<Outcome> {
    let broker = MockCluster::new(1)?;
    broker.create_topic(COMMANDS, 1, 1)?;
    broker.create_topic(CREATED, 1, 1)?;
    let brokers = broker.bootstrap_servers();
    let end = produce(&brokers)?;

    let name = format!("orders_{}_{}", way.replace('-', "_"), std::process::id());
    let (address, options) = server.split_once('?').unwrap_or((server, ""));
    let url = format!("{}/{name}?{options}", address.trim_end_matches('/'));
    let database = Client::with_uri_str(&url).await?.database(&name);
    for limit in CRASHES {
        let died = run_service(way, &url, &brokers, end, Some(limit))?;
        if died.success() {
            return Err(format!("{way} was to die in the middle of an order, and did not").into());
        }
    }
    let lived = run_service(way, &url, &brokers, end, None)?;
    if !lived.success() {
        return Err(format!("{way} ended with {lived}").into());
    }
    let outcome = count(&database, told(&brokers)?).await;
    database.drop().await?;
    outcome
}

/// Runs this program again, as one of the services.
fn run_service(
    way: &str,
    url: &str,
    brokers: &str,
    end: i64,
    crash_after: Option<u32>,
) -> std::io::Result<ExitStatus> {
    let mut service = Command::new(std::env::current_exe()?);
    service.env("ORDERS_WAY", way).env("ORDERS_URL", url);
    service.env("ORDERS_BROKERS", brokers).env("ORDERS_END", end.to_string());
    if let Some(limit) = crash_after {
        service.env(crash::VARIABLE, limit.to_string());
    }
    service.status()
}

/// The commands, one in five twice. Returns how many records that is.
fn produce(brokers: &str) -> oncebox::Result<i64> {
    let producer: ThreadedProducer<DefaultProducerContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let mut end = 0;
    for n in 0..ORDERS {
        let order = Order { order: format!("o-{n:04}"), sku: format!("sku-{}", n % 7), qty: 1 };
        let command = serde_json::to_string(&order)?;
        for _ in 0..if n % 5 == 0 { 2 } else { 1 } {
            let record = BaseRecord::to(COMMANDS).key(&order.order).payload(&command);
            producer.send(record).map_err(|(error, _)| error)?;
            end += 1;
        }
    }
    producer.flush(Duration::from_secs(10))?;
    Ok(end)
}

/// Which orders others were told of.
fn told(brokers: &str) -> oncebox::Result<BTreeSet<String>> {
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", brokers).set("group.id", "others").create()?;
    let mut all = TopicPartitionList::new();
    all.add_partition_offset(CREATED, 0, Offset::Beginning)?;
    consumer.assign(&all)?;
    let (_, end) = consumer.fetch_watermarks(CREATED, 0, Duration::from_secs(10))?;
    let (mut told, mut next) = (BTreeSet::new(), 0);
    while next < end {
        let Some(event) = consumer.poll(Duration::from_secs(10)) else {
            return Err("the events of the topic did not come".into());
        };
        let event = event?;
        told.extend(event.key().map(|key| String::from_utf8_lossy(key).into_owned()));
        next = event.offset() + 1;
    }
    Ok(told)
}

async fn count(database: &Database, told: BTreeSet<String>) -> oncebox::Result<Outcome> {
    let orders: Vec<Document> = database.collection("orders").find(doc! {}).await?.try_collect().await?;
    let different: BTreeSet<&str> = orders.iter().filter_map(|order| order.get_str("order").ok()).collect();
    Ok(Outcome {
        orders: orders.len(),
        lost: ORDERS - different.len(),
        doubled: orders.len() - different.len(),
        told: told.len(),
    })
}
