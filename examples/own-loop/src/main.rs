//! The bare claim, in a loop and a transaction of your own: `cargo run -p example-own-loop`.
//!
//! oncebox needs neither its runtime nor Kafka for this: a webhook, a queue, a file with lines, anything with a stable id.

use oncebox::Inbox;
use oncebox::sqlite::SqliteStore;
use sqlx::{Connection, SqliteConnection};

#[cfg(test)]
mod tests;

const TABLE: &str = "CREATE TABLE invoice (number TEXT PRIMARY KEY, cents INTEGER CHECK (cents > 0))";

/// Writes the invoice down, once.
async fn receive(
    inbox: &Inbox<SqliteStore>,
    connection: &mut SqliteConnection,
    id: &str,
    cents: i64,
) -> oncebox::Result {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    if inbox.claim(&mut tx, id).await?.is_fresh() {
        sqlx::query("INSERT INTO invoice VALUES (?, ?)").bind(id).bind(cents).execute(&mut *tx).await?;
    } else {
        println!("{id} was applied before: skipped");
    }
    Ok(tx.commit().await?)
}

#[tokio::main]
async fn main() -> oncebox::Result {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("shop.sqlite").display());
    let store = SqliteStore::connect(&url).await?;
    store.migrate().await?;
    let mut connection = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql(TABLE).execute(&mut connection).await?;

    let inbox = Inbox::new("invoices", store)?;
    // What some broker delivered; the second delivery of INV-1 is a retry after a time-out.
    for (id, cents) in [("INV-1", 1_900), ("INV-2", 4_200), ("INV-1", 1_900)] {
        receive(&inbox, &mut connection, id, cents).await?;
        // Only now tell the broker: acknowledge after the commit.
    }

    let (invoices, cents): (i64, i64) =
        sqlx::query_as("SELECT COUNT(*), SUM(cents) FROM invoice").fetch_one(&mut connection).await?;
    println!("{invoices} invoices over {cents} cents");
    assert_eq!((invoices, cents), (2, 6_100));
    Ok(())
}
