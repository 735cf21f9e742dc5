use oncebox_core::error::Result;
use oncebox_core::inbox::Inbox;
use oncebox_core::message::Message;
use oncebox_sqlite::SqliteStore;
use sqlx::SqliteConnection;

// Forgot `async`.
fn handler(_tx: &mut SqliteConnection, _message: &Message) -> Result {
    Ok(())
}

fn register(inbox: Inbox<SqliteStore>) {
    inbox.each(handler);
}

fn main() {
    let _ = register;
}
