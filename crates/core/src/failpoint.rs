//! Named places in the loop where a test can end the process, as a crash would, or the task, as a bug would.
//!
//! `ONCEBOX_FAILPOINT=after-claim:3` ends the process the third time that place is reached; `after-claim:3:panic` panics there.
//! Without the feature `failpoints` this compiles to nothing.

/// Ends the process or the task here if a test asked for it.
#[cfg(feature = "failpoints")]
pub fn failpoint(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static WANTED: OnceLock<Option<(String, u32, bool)>> = OnceLock::new();
    static REACHED: AtomicU32 = AtomicU32::new(0);

    let wanted = WANTED.get_or_init(|| {
        let spec = std::env::var("ONCEBOX_FAILPOINT").ok()?;
        let mut parts = spec.split(':');
        let name = parts.next()?.to_owned();
        let count = parts.next().unwrap_or("1").parse().ok()?;
        Some((name, count, parts.next() == Some("panic")))
    });
    if let Some((at, count, panic)) = wanted
        && at == name
        && REACHED.fetch_add(1, Ordering::SeqCst) + 1 == *count
    {
        assert!(!panic, "failpoint {name}: ending the task");
        eprintln!("failpoint {name}: ending the process");
        std::process::abort();
    }
}

/// Ends the process or the task here if a test asked for it.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn failpoint(_name: &str) {}
