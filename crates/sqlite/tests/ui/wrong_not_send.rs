use oncebox::sqlite::SqliteStore;
use oncebox::{Inbox, Message};
use sqlx::SqliteConnection;

// Holds something across an await that must not move between threads.
async fn handler(tx: &mut SqliteConnection, _message: &Message) -> oncebox::Result {
    let counter = std::rc::Rc::new(1);
    sqlx::query("SELECT 1").execute(tx).await?;
    drop(counter);
    Ok(())
}

fn register(inbox: Inbox<SqliteStore>) {
    inbox.each(handler);
}

fn main() {
    let _ = register;
}
