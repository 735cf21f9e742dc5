use oncebox_core::{Inbox, Message, Result};
use oncebox_sqlite::SqliteStore;
use sqlx::SqliteConnection;

// A type that is no handler.
struct Deduct;

fn register(inbox: Inbox<SqliteStore>) {
    inbox.service(Deduct);
}

fn main() {
    let _: Option<(Result, Message, SqliteConnection)> = None;
    let _ = register;
}
