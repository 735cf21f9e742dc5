//! Named places in the loop where a test can end the process, as a crash would.
//!
//! `ONCEBOX_FAILPOINT=after-claim:3` ends it the third time that place is reached. Without the feature `failpoints` this
//! compiles to nothing.

/// Ends the process here if a test asked for it.
#[cfg(feature = "failpoints")]
pub fn failpoint(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static WANTED: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static REACHED: AtomicU32 = AtomicU32::new(0);

    let wanted = WANTED.get_or_init(|| {
        let spec = std::env::var("ONCEBOX_FAILPOINT").ok()?;
        let (name, count) = spec.split_once(':').unwrap_or((&spec, "1"));
        Some((name.to_owned(), count.parse().ok()?))
    });
    if let Some((at, count)) = wanted
        && at == name
        && REACHED.fetch_add(1, Ordering::SeqCst) + 1 == *count
    {
        eprintln!("failpoint {name}: ending the process");
        std::process::abort();
    }
}

/// Ends the process here if a test asked for it.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn failpoint(_name: &str) {}
