//! Ctrl-C and SIGTERM as an ordinary error.
//!
//! The handler only notes the signal. Whatever waits asks [`check`] and returns, so the guards on the stack
//! stop what was started: the same way out as for any other failure.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// The error that [`check`] returns after a signal.
#[derive(Debug)]
pub(crate) struct Interrupted(usize);

impl Interrupted {
    /// What a shell reports for a process that ended by this signal.
    pub(crate) fn exit_code(&self) -> u8 {
        u8::try_from(128 + self.0).unwrap_or(1)
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped by signal {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// From here on SIGINT and SIGTERM no longer end the process. (SIGHUP keeps its meaning, for `nohup`.)
pub(crate) fn install() -> Result<()> {
    let seen = SIGNAL.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        let number = usize::try_from(signal)?;
        signal_hook::flag::register_usize(signal, Arc::clone(seen), number)
            .context("cannot install the signal handler")?;
    }
    Ok(())
}

/// An error once a signal has arrived.
pub(crate) fn check() -> Result<()> {
    match SIGNAL.get().map_or(0, |seen| seen.load(Ordering::Relaxed)) {
        0 => Ok(()),
        signal => Err(Interrupted(signal).into()),
    }
}
