//! The store on a real replica set, named by ONCEBOX_TEST_MONGODB.

#![allow(clippy::unwrap_used, clippy::panic)] // a panic is how a test fails

mod suite;
