//! The relay on a real SQLite file, with sinks scripted by the test.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod accepted;
mod copies;
mod failures;
mod fixture;
mod flow;
mod sharing;
mod stalls;
