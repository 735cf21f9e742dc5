//! Named places where a test can put a known mistake back, to see that the simulation finds it.
//!
//! Without the feature `mistakes` this compiles to nothing.

#[cfg(feature = "mistakes")]
thread_local! {
    static MADE: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread makes that mistake, or none.
#[cfg(feature = "mistakes")]
pub fn make_mistake(name: Option<&'static str>) {
    MADE.set(name);
}

/// Whether that mistake is to be made here.
#[cfg(feature = "mistakes")]
pub(crate) fn mistaken(name: &str) -> bool {
    MADE.get() == Some(name)
}

/// Whether that mistake is to be made here.
#[cfg(not(feature = "mistakes"))]
#[inline(always)]
pub(crate) fn mistaken(_name: &str) -> bool {
    false
}
