use oncebox::Inbox;
use oncebox::sqlite::SqliteStore;

// A type that is no handler.
struct Deduct;

fn register(inbox: Inbox<SqliteStore>) {
    inbox.with(Deduct);
}

fn main() {
    let _ = register;
}
