//! SIGTERM and SIGINT: the first asks for the end, the second is obeyed at once. SIGHUP: read the file again.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::exit::Failure;

/// What a shell says of a process that this signal has ended. Part of the contract with scripts.
const AFTER_INTERRUPT: i32 = 130;
const AFTER_TERMINATE: i32 = 143;

/// Cancels the token at the first SIGTERM or SIGINT, and ends the process at the second.
pub(super) fn stop_on_signal(stop: CancellationToken) -> Result<(), Failure> {
    let mut ends =
        Ends { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
    tokio::spawn(async move {
        ends.next().await;
        info!("told to stop; a second signal ends the process at once");
        stop.cancel();
        let code = ends.next().await;
        warn!(code, "told to stop once more: ending at once. What was in flight will be delivered again");
        end_now(code);
    });
    Ok(())
}

struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    /// Waits for either, and returns the code that belongs to it.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.terminate.recv() => AFTER_TERMINATE,
            _ = self.interrupt.recv() => AFTER_INTERRUPT,
        }
    }
}

/// Whatever hangs is not waited for; transactions that are open are undone by their databases.
#[expect(clippy::exit, reason = "the way out by `main` waits for what is under way")]
fn end_now(code: i32) -> ! {
    std::process::exit(code)
}

/// Every SIGHUP.
pub(super) fn reloads() -> Result<Signal, Failure> {
    Ok(signal(SignalKind::hangup())?)
}
