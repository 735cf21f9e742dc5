//! Crashes on purpose.

use std::sync::atomic::{AtomicU32, Ordering};

/// The variable that says in the middle of how many orders the process lives.
pub(crate) const VARIABLE: &str = "ORDERS_CRASH_AFTER";

static ORDERS: AtomicU32 = AtomicU32::new(0);

/// Called in the middle of every order. Ends the process when it is time: no destructor runs, nothing is flushed, as with
/// `kill -9`.
pub(crate) fn in_the_middle() {
    let orders = ORDERS.fetch_add(1, Ordering::Relaxed) + 1;
    let limit = std::env::var(VARIABLE).ok().and_then(|limit| limit.parse::<u32>().ok());
    if limit.is_some_and(|limit| orders >= limit) {
        std::process::abort();
    }
}
