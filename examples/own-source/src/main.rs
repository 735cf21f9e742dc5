//! A source and a sink that oncebox does not have: `cargo run -p example-own-source`.
//!
//! Orders are lines in a file (`lines.rs`), invoices are lines in another (`append.rs`). The program bills what is there,
//! ends, and is run again after more orders have come: it goes on behind the last line, and an order that was written twice
//! is billed once.

mod append;
mod lines;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use oncebox::sqlite::SqliteStore;
use oncebox::store::Status;
use oncebox::{Emit, Event, Inbox, Message, Relay, Selector};
use sqlx::SqliteConnection;

use crate::append::Append;
use crate::lines::Lines;

#[derive(serde::Deserialize)]
struct Order {
    cents: i64,
}

async fn bill(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    let Order { cents } = message.json()?;
    let invoice = format!("order {}: {cents} cents", message.id());
    tx.emit(Event::to("invoices").key(message.id().as_str()).bytes(invoice)).await?;
    Ok(())
}

/// Runs until this many lines are settled and no event waits, where a service would wait for a signal. Says how many
/// messages were applied and how many were duplicates, so far.
async fn run(folder: &Path, lines: i64) -> oncebox::Result<(u64, u64)> {
    let url = format!("sqlite://{}", folder.join("billing.sqlite").display());
    let store = SqliteStore::connect(&url).await?;
    store.migrate().await?;
    let inbox = Inbox::new("billing", store.clone())?.id(Selector::Json("/order".into())).each(bill);
    let relay = Relay::new(store.clone()).sink(Append::to(folder.join("invoices")));
    tokio::try_join!(
        inbox.run(Lines::of(folder.join("orders")), done(&store, lines)),
        relay.run(done(&store, lines)),
    )?;
    let status = store.status(1).await?;
    let position = status.positions.first().ok_or("there is no position")?;
    Ok((position.applied, position.duplicates.total()))
}

async fn done(store: &SqliteStore, lines: i64) {
    loop {
        if let Ok(status) = store.status(1).await {
            let next = status.positions.first().and_then(|position| position.next_offset);
            if next >= Some(lines) && status.outbox.pending == 0 {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What somebody else does.
fn order(folder: &Path, lines: &[&str]) -> std::io::Result<()> {
    let mut orders = OpenOptions::new().create(true).append(true).open(folder.join("orders"))?;
    lines.iter().try_for_each(|line| writeln!(orders, "{line}"))
}

#[tokio::main]
async fn main() -> oncebox::Result {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    order(folder, &[r#"{"order": "1001", "cents": 1900}"#, r#"{"order": "1002", "cents": 4200}"#])?;
    assert_eq!(run(folder, 2).await?, (2, 0));
    // The second process: a new order, and one that was there already.
    order(folder, &[r#"{"order": "1003", "cents": 250}"#, r#"{"order": "1001", "cents": 1900}"#])?;
    // It has not read the first two lines again: then there would be three duplicates.
    assert_eq!(run(folder, 4).await?, (3, 1));

    let invoices = std::fs::read_to_string(folder.join("invoices"))?;
    print!("{invoices}");
    let mut billed: Vec<&str> = invoices.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    // Only events of one key are in order.
    billed.sort_unstable();
    assert_eq!(billed, ["order 1001: 1900 cents", "order 1002: 4200 cents", "order 1003: 250 cents"]);
    Ok(())
}
