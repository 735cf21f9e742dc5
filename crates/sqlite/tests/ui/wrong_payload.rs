use oncebox::Inbox;
use oncebox::sqlite::SqliteStore;
use sqlx::SqliteConnection;

// The payload's type cannot be read from JSON.
struct Order {}

async fn handler(_tx: &mut SqliteConnection, _order: Order) -> oncebox::Result {
    Ok(())
}

fn register(inbox: Inbox<SqliteStore>) {
    inbox.each_json(handler);
}

fn main() {
    let _ = register;
}
