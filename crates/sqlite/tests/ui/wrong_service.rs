use oncebox_core::error::Result;
use oncebox_core::inbox::Inbox;
use oncebox_core::message::Message;
use oncebox_sqlite::SqliteStore;
use sqlx::SqliteConnection;

// A type that is no handler.
struct Deduct;

fn register(inbox: Inbox<SqliteStore>) {
    inbox.with(Deduct);
}

fn main() {
    let _: Option<(Result, Message, SqliteConnection)> = None;
    let _ = register;
}
