#![allow(clippy::unwrap_used)]

mod bad;
mod good;
mod operations;
