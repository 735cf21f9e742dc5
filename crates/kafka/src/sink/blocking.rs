//! Calls of librdkafka that block, off the runtime.

use tokio::sync::oneshot;

use crate::error::Error;

/// Runs `work` on a thread of its own. Not on one of the runtime's: it would wait for the answer of an unreachable broker
/// before it ends.
pub(super) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name("oncebox-kafka-ask".to_owned());
    // When nobody waits for the answer any more it is dropped on that thread too.
    let started = thread.spawn(move || drop(answer.send(work())));
    started.map_err(|e| Error::Fatal(format!("no thread can be started: {e}")))?;
    answered.await.unwrap_or_else(|_| Err(Error::Fatal("a question to the broker has panicked".to_owned())))
}
