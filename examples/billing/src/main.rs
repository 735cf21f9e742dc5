//! From order to invoice to mail, through a crash between every two steps: `cargo run -p example-billing`.
//!
//! `orders.confirmed` → the handler writes an invoice and emits `invoice.issued`, in one transaction → the relay → a mail.
//! The program runs the service (`service.rs`) as a child process that dies at one place after the other, and starts it again
//! each time. In the end every order has one invoice, and its mail is out: perhaps twice, but then with the same id.

mod crash;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use sqlx::{Connection, SqliteConnection};

use crate::crash::{PLACES, Place};

const ORDERS: [(&str, i64); 4] = [("1001", 1_900), ("1002", 4_200), ("1003", 250), ("1004", 99_900)];

#[tokio::main]
async fn main() -> oncebox::Result<ExitCode> {
    // The child: the service itself.
    if let (Ok(folder), Ok(brokers)) = (std::env::var("BILLING_FOLDER"), std::env::var("BILLING_BROKERS")) {
        let service = service::run(Path::new(&folder), &brokers, ORDERS.len() as i64);
        tokio::time::timeout(Duration::from_secs(60), service).await??;
        return Ok(ExitCode::SUCCESS);
    }

    // The parent: the broker, which outlives every crash, and the orders, each of which is published twice.
    let folder = tempfile::tempdir()?;
    let broker = MockCluster::new(1)?;
    broker.create_topic("orders.confirmed", 1, 1)?;
    let brokers = broker.bootstrap_servers();
    produce(&brokers)?;
    for place in PLACES {
        let died = run_service(folder.path(), &brokers, Some(place))?;
        println!("{place:?}: {died}");
        if died.success() {
            return Err(format!("the service was to die at {place:?}, and did not").into());
        }
    }
    println!("without a crash: {}", run_service(folder.path(), &brokers, None)?);
    verdict(folder.path()).await
}

/// Runs this program again, as the service.
fn run_service(folder: &Path, brokers: &str, crash_at: Option<Place>) -> std::io::Result<ExitStatus> {
    let mut service = Command::new(std::env::current_exe()?);
    service.env("BILLING_FOLDER", folder).env("BILLING_BROKERS", brokers);
    if let Some(place) = crash_at {
        service.env(crash::VARIABLE, format!("{place:?}"));
    }
    service.status()
}

fn produce(brokers: &str) -> oncebox::Result {
    let producer: ThreadedProducer<DefaultProducerContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    for (order, cents) in ORDERS.into_iter().chain(ORDERS) {
        let payload = serde_json::json!({"order": order, "cents": cents}).to_string();
        let record = BaseRecord::to("orders.confirmed").key(order).payload(&payload);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    Ok(producer.flush(Duration::from_secs(10))?)
}

/// One invoice for each order, and at least one mail, all with the same id.
async fn verdict(folder: &Path) -> oncebox::Result<ExitCode> {
    let url = format!("sqlite://{}", folder.join("billing.sqlite").display());
    let mut books = SqliteConnection::connect(&url).await?;
    let sql = "SELECT order_id, count(*) FROM invoice GROUP BY order_id";
    let invoices: BTreeMap<String, i64> =
        sqlx::query_as(sql).fetch_all(&mut books).await?.into_iter().collect();
    let mailbox = std::fs::read_to_string(folder.join("mailbox"))?;

    let mut good = invoices.len() == ORDERS.len();
    println!("\norder  invoices  mails  message ids");
    for (order, _) in ORDERS {
        let of_order = format!(" Order: {order} ");
        let mails: Vec<&str> = mailbox.lines().filter(|mail| mail.contains(&of_order)).collect();
        let ids: BTreeSet<&str> = mails.iter().filter_map(|mail| mail.split(' ').nth(1)).collect();
        let invoices = invoices.get(order).copied().unwrap_or(0);
        println!("{order:<5}  {invoices:>8}  {:>5}  {:>11}", mails.len(), ids.len());
        good &= invoices == 1 && !mails.is_empty() && ids.len() == 1;
    }
    println!("{}", if good { "every order was billed once" } else { "something is missing or doubled" });
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
