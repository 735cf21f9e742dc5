//! The tests, once for each server.

mod adopt;
mod adopt_large;
mod by_hand;
mod check;
mod claims;
mod conformance;
mod errors;
mod failover;
mod letters;
mod outbox;
mod outbox_model;
mod outbox_order;
mod procedure;
mod purge;
mod schema;
mod shop;
mod sql_batch;
mod sql_each;
mod sql_events;
mod sql_procedures;
mod sql_refusals;
mod sql_support;
mod support;
mod torn;
