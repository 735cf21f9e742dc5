//! The tests, once for each server.

mod claims;
mod support;
