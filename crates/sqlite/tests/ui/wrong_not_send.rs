use oncebox_core::error::Result;
use oncebox_core::inbox::Inbox;
use oncebox_core::message::Message;
use oncebox_sqlite::SqliteStore;
use sqlx::SqliteConnection;

// Holds something across an await that must not move between threads.
async fn handler(tx: &mut SqliteConnection, _message: &Message) -> Result {
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
