//! The loop on a real SQLite file, with deliveries scripted by the test.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod bare_claim;
mod blame;
mod causes;
mod crash_guard;
mod differing;
mod duplicates;
mod failures;
mod filter;
mod fixture;
mod lanes;
mod live;
mod logs;
mod pauses;
mod queues;
mod queues_give_back;
mod replay;
