//! What oncebox is, without a database or a broker.

mod bare;
pub mod config;
mod engine;
mod error;
mod failpoint;
mod handler;
pub mod headers_json;
mod isolate;
mod message;
mod monitor;
mod names;
mod policy;
mod receipt;
pub mod selector;
mod settings;
pub mod source;
mod sql_handler;
mod start;
pub mod statement;
mod store;
mod stream;
mod tracker;

pub use bare::Receipt;
pub use engine::{Inbox, Replayed, Worker, purge_loop, replay};
pub use error::*;
pub use failpoint::failpoint;
pub use handler::*;
pub use message::*;
pub use monitor::*;
pub use names::*;
pub use policy::*;
pub use receipt::ReceiptKey;
pub use settings::Settings;
pub use sql_handler::{BadStatement, SqlHandlerError};
pub use start::*;
pub use store::*;
