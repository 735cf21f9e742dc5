//! What the tests against a real broker share.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod broker;
pub mod events;
pub mod inbox;
pub mod node;
pub mod proxy;
pub mod raw;

use std::time::Duration;

use tokio::time::Instant;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A service that `cargo xtask` has started.
pub fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `cargo xtask test`, or `cargo xtask services` beside")
    })
}

/// The URL of the broker that all tests share.
pub fn url() -> String {
    service("ONCEBOX_TEST_RABBITMQ")
}

/// A name that no other test has.
pub fn unique(name: &str) -> String {
    format!("{name}-{}", uuid::Uuid::now_v7().simple())
}

/// Waits until it holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
