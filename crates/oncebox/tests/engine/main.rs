//! The loop on a real SQLite file, with deliveries scripted by the test.

mod bare_claim;
mod crash_guard;
mod duplicates;
mod failures;
mod fixture;
mod lanes;
