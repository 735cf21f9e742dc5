//! Named places in the loop where a test can step in: to end the process, as a crash would, or the task, as a bug would.
//!
//! Without the feature `failpoints` this compiles to nothing.

#[cfg(feature = "failpoints")]
static HOOK: std::sync::OnceLock<fn(&str)> = std::sync::OnceLock::new();

/// From now on this process calls `hook` at each place, with its name. The first hook stays.
#[cfg(feature = "failpoints")]
pub fn install(hook: fn(&str)) {
    HOOK.get_or_init(|| hook);
}

/// A place where a test can step in.
#[cfg(feature = "failpoints")]
pub fn failpoint(name: &str) {
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
}

/// A place where a test can step in.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn failpoint(_name: &str) {}
