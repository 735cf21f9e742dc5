//! Ends the process or a task where a test asks for it, at one of the named places in the loop.
//!
//! `ONCEBOX_FAILPOINT=after-claim:3` ends the process the third time that place is reached; `after-claim:3:panic` panics there.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::output;

struct Wanted {
    place: String,
    count: u32,
    panics: bool,
}

static WANTED: OnceLock<Wanted> = OnceLock::new();
static REACHED: AtomicU32 = AtomicU32::new(0);

/// Reads what is asked for.
pub(crate) fn install() {
    if let Some(wanted) = std::env::var("ONCEBOX_FAILPOINT").ok().as_deref().and_then(read) {
        WANTED.get_or_init(|| wanted);
        oncebox_core::failpoint::install(reached);
    }
}

fn read(text: &str) -> Option<Wanted> {
    let mut parts = text.split(':');
    let place = parts.next()?.to_owned();
    let count = parts.next().unwrap_or("1").parse().ok()?;
    Some(Wanted { place, count, panics: parts.next() == Some("panic") })
}

fn reached(place: &str) {
    if let Some(wanted) = WANTED.get()
        && wanted.place == place
        && REACHED.fetch_add(1, Ordering::SeqCst) + 1 == wanted.count
    {
        assert!(!wanted.panics, "failpoint {place}: ending the task");
        output::note(&format!("failpoint {place}: ending the process"));
        std::process::abort();
    }
}
