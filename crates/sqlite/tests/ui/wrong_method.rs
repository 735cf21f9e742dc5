use oncebox::Inbox;
use oncebox::sqlite::SqliteStore;
use sqlx::SqliteConnection;

#[derive(serde::Deserialize)]
struct Order {}

// Wants the payload, and is given to the method for whole messages.
async fn handler(_tx: &mut SqliteConnection, _order: Order) -> oncebox::Result {
    Ok(())
}

fn register(inbox: Inbox<SqliteStore>) {
    inbox.each(handler);
}

fn main() {
    let _ = register;
}
