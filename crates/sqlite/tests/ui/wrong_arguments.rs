use oncebox::sqlite::SqliteStore;
use oncebox::{Inbox, Message};
use sqlx::SqliteConnection;

// Wants to own the message.
async fn handler(_tx: &mut SqliteConnection, _message: Message) -> oncebox::Result {
    Ok(())
}

fn register(inbox: Inbox<SqliteStore>) {
    inbox.each(handler);
}

fn main() {
    let _ = register;
}
