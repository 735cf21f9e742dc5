//! `cargo xtask services`: the services alone, for running single tests by hand.

use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::interrupt::{self, Interrupted};
use crate::services::{Service, Services};

/// Starts the services and holds them until a signal.
pub(crate) fn run() -> Result<()> {
    let mut services = Services::start(&Service::ALL)?;
    let mut out = io::stdout().lock();
    out.write_all(services.exports().as_bytes())?;
    out.flush()?;
    drop(out);
    eprintln!("xtask: running until Ctrl-C; logs in {}", services.dir().display());

    let end = loop {
        if let Err(error) = interrupt::check().and_then(|()| services.check_alive()) {
            break error;
        }
        thread::sleep(Duration::from_millis(100));
    };
    drop(services);
    // A signal is how this command is meant to end.
    if end.is::<Interrupted>() {
        eprintln!("xtask: the services are stopped");
        return Ok(());
    }
    Err(end)
}
