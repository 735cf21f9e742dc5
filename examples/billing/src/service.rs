//! The service: an order becomes an invoice and an event, the event becomes a mail.

use oncebox::store::Status;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncebox::kafka::Kafka;
use oncebox::sink::{ByEvent, OutgoingEvent};
use oncebox::sqlite::SqliteStore;
use oncebox::{Emit, Event, Inbox, Message, Relay, Worker};
use sqlx::{Connection, SqliteConnection};

use crate::crash::{self, Place};

#[cfg(test)]
mod tests;

// No unique key: nothing but oncebox keeps a second invoice away.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS invoice (order_id TEXT NOT NULL, cents INTEGER NOT NULL)";

#[derive(serde::Deserialize)]
struct Order {
    order: String,
    cents: i64,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Invoice {
    order: String,
    cents: i64,
}

/// Writes the invoice and says so: both in the transaction that also holds the receipt of the order.
async fn bill(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    let Order { order, cents } = message.json()?;
    sqlx::query("INSERT INTO invoice (order_id, cents) VALUES (?, ?)")
        .bind(&order)
        .bind(cents)
        .execute(&mut *tx)
        .await?;
    let invoice = Invoice { order, cents };
    tx.emit(Event::to("invoice.issued").key(&invoice.order).json(&invoice)?).await?;
    crash::at(Place::BeforeCommit);
    Ok(())
}

/// "Sends" a mail. A mail cannot be taken back, so it may go out twice; with the event's id as its Message-ID, mail programs
/// show it once.
async fn mail(mailbox: PathBuf, event: OutgoingEvent) -> oncebox::Result {
    crash::at(Place::BeforeMail);
    let invoice: Invoice = event.json()?;
    let mail = format!("Message-ID: <{}> Order: {} Cents: {}\n", event.id(), invoice.order, invoice.cents);
    OpenOptions::new().create(true).append(true).open(mailbox)?.write_all(mail.as_bytes())?;
    crash::at(Place::AfterMail);
    Ok(())
}

/// Orders become invoices.
fn inbox(store: &SqliteStore) -> oncebox::Result<Worker<SqliteStore>> {
    Ok(Inbox::new("billing", store.clone())?.each(bill))
}

/// Events become mails.
fn relay(store: &SqliteStore, folder: &Path) -> Relay<SqliteStore> {
    let mailbox = folder.join("mailbox");
    let mails = ByEvent::from_fn(move |event| mail(mailbox.clone(), event));
    Relay::new(store.clone()).route("invoice.issued", mails)
}

/// Runs until every order has its invoice and no event waits. A real service would wait for a signal.
pub(crate) async fn run(folder: &Path, brokers: &str, orders: i64) -> oncebox::Result {
    let url = format!("sqlite://{}", folder.join("billing.sqlite").display());
    let store = SqliteStore::connect(&url).await?;
    store.migrate().await?;
    let mut books = SqliteConnection::connect(&url).await?;
    sqlx::query(TABLE).execute(&mut books).await?;

    // A consumer that died is replaced after six seconds instead of 45.
    let kafka = Kafka::brokers(brokers).property("session.timeout.ms", "6000");
    let billing = inbox(&store)?.run(kafka.source(["orders.confirmed"]), billed(&url, orders));

    // A relay that died is replaced after one second instead of ten.
    let relay = relay(&store, folder).lease(Duration::from_secs(1));
    let mailing = async {
        if crash::is_wanted(Place::AfterCommit) {
            billed(&url, orders).await;
            crash::at(Place::AfterCommit);
        }
        relay.run(mailed(&store, &url, orders)).await
    };
    let (billing, mailing) = tokio::join!(billing, mailing);
    Ok(billing.and(mailing)?)
}

/// Every order has an invoice.
async fn billed(url: &str, orders: i64) {
    let Ok(mut books) = SqliteConnection::connect(url).await else { return };
    loop {
        let sql = "SELECT count(DISTINCT order_id) FROM invoice";
        let billed: Result<i64, _> = sqlx::query_scalar(sql).fetch_one(&mut books).await;
        if billed.is_ok_and(|billed| billed >= orders) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// And every event is out.
async fn mailed(store: &SqliteStore, url: &str, orders: i64) {
    billed(url, orders).await;
    while !store.status(1).await.is_ok_and(|status| status.outbox.pending == 0) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
