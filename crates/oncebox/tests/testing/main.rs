//! The test kit: what it promises holds, and what it says when a handler breaks the promise.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod assertions;
mod crashes;
mod deliveries;
mod events;
mod fixture;
mod time;
