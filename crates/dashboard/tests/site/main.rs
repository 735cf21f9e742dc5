//! The dashboard over a backend that says what a test wants: no database, no network.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod asked;
mod editing;
mod exporting;
mod fake;
mod finding;
mod hostile;
mod openapi;
mod pages;
