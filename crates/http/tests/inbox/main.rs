//! The real engine on SQLite, a real server and real clients on the loopback interface.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod accept;
mod answers;
mod client;
mod cloudevents;
mod copies;
mod differing;
mod fixture;
mod hostile;
mod paused;
mod restarts;
mod verified;
mod webhook_sink;
