#![allow(clippy::unwrap_used)]

mod bad;
mod connections;
mod good;
mod operations;
