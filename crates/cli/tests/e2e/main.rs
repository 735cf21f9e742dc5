//! The whole product, as its users run it: `oncebox run` as a process, a real Kafka, a real PostgreSQL, MariaDB, MySQL or MongoDB or a
//! SQLite file, and everything that goes wrong between them.
//!
//! Each test has a database, a topic and a consumer of its own and counts in the end from the database. No test waits for
//! a time to pass: they wait for what they want to see, with a deadline that only a failure reaches.

mod adopt;
mod brokers;
mod clusters;
mod copies;
mod crash;
mod dead;
mod debezium;
mod demo;
mod demo_rabbitmq;
mod duplicates;
mod election;
mod environment;
mod escapes;
mod failover;
mod filter;
mod group;
mod lag;
mod log;
mod memory;
mod migrate;
mod mongodb;
mod neighbours;
mod odd;
mod operate;
mod other_log;
mod outage;
mod pause;
mod poison;
mod positions;
mod purge;
mod rabbitmq;
mod relay_crash;
mod relay_events;
mod relay_outage;
mod relay_sharing;
mod relay_soak;
mod retention;
mod settings;
mod shutdown;
mod sign_in;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod surface;
mod sweep;
mod telemetry;
mod tenancy;
mod truncated;
mod values;
mod webhook;
mod webhook_trouble;
mod zombie;
