//! Waiting for something to come true.

use std::time::{Duration, Instant};

/// Generous: a condition that holds sooner costs nothing, and a slow machine is no failure.
const DEADLINE: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(50);

/// Waits until something holds; fails with `what` if it never does.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {} s: {what}", DEADLINE.as_secs());
        tokio::time::sleep(POLL).await;
    }
}
