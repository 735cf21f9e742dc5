//! The store on a real MariaDB: what every store must do, and what is special about this one.

#![allow(clippy::unwrap_used, clippy::panic)] // a panic is how a test fails

mod suite;

/// The variable that names the server.
const SERVER: &str = "ONCEBOX_TEST_MARIADB";
