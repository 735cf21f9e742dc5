use oncebox::sqlite::SqliteStore;
use oncebox::{Inbox, Message};
use sqlx::SqliteConnection;

// Returns the driver's error instead of `oncebox::Result`.
async fn handler(tx: &mut SqliteConnection, _message: &Message) -> std::result::Result<(), sqlx::Error> {
    sqlx::query("SELECT 1").execute(tx).await?;
    Ok(())
}

fn register(inbox: Inbox<SqliteStore>) {
    inbox.each(handler);
}

fn main() {
    let _ = register;
}
