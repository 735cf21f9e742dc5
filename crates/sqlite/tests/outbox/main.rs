//! The outbox in SQLite.

mod admin;
mod file;
mod holding;
mod leases;
mod reading;
mod sweeps;
mod writing;
