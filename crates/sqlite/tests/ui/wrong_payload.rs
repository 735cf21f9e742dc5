use oncebox_core::error::Result;
use oncebox_core::inbox::Inbox;
use oncebox_core::message::Message;
use oncebox_sqlite::SqliteStore;
use sqlx::SqliteConnection;

// The payload's type cannot be read from JSON.
struct Order {}

async fn handler(_tx: &mut SqliteConnection, _order: Order) -> Result {
    Ok(())
}

fn register(inbox: Inbox<SqliteStore>) {
    inbox.each_json(handler);
}

fn main() {
    let _: Option<Message> = None;
    let _ = register;
}
