//! The tests, once for each server.

mod claims;
mod sql_batch;
mod sql_each;
mod sql_refusals;
mod sql_support;
mod support;
