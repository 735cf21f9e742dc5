//! For sources that live in async code: the same steps as [`Stream`]'s own methods, but waiting.

use std::ops::Range;
use std::time::Duration;

use super::Intake;
use super::start::{Known, Start, start_at};
use super::stream::Stream;
use crate::error::BoxError;
use crate::message::Record;

/// How soon what is waited for is seen.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Intake {
    /// Waits until the engine owns the position of a stream, and begins where it says. `log` are the offsets that the log
    /// holds now: from the oldest to one past the newest.
    ///
    /// The source then sends what it reads from [`Start::read_from`] on. A queue begins at once.
    ///
    /// # Errors
    /// The reason why the stream stands still: messages are missing, or it is another log (see
    /// [`StartError`](super::StartError)), or another process has taken it over. A source that returns the error is started
    /// again after a while.
    pub async fn begin(&self, stream: &Stream, log: Range<i64>) -> Result<Start, BoxError> {
        if stream.0.deliveries.is_some() {
            return Ok(Start::at(log.start));
        }
        stream.until(|| stream.acquired().is_some()).await;
        let Some(stored) = stream.acquired() else {
            return Err(stream.stopped().unwrap_or("the stream was closed").into());
        };
        let known = Known { stored, committed: None, log: None, low: log.start, high: log.end };
        match start_at(known, self.start_policy()) {
            Ok(start) => {
                stream.start(start.clone());
                Ok(start)
            }
            Err(reason) => {
                let reason = reason.explain(stream.key());
                stream.stop(reason.clone());
                Err(reason.into())
            }
        }
    }
}

impl Stream {
    /// Hands over a record, and waits before that while the stream is full. False if the stream is closing or stopped. A
    /// record that was received before, or lies below the start, is dropped: it is settled, or will be.
    pub async fn send(&self, record: Record) -> bool {
        if self.is_full() {
            self.until(|| self.has_room()).await;
        }
        self.push(record);
        !self.0.queues.has_ended()
    }

    /// Closes the stream and waits until the transaction in flight has ended and the position is given back.
    pub async fn finish(&self) {
        self.close();
        while !self.wait_closed(Duration::ZERO) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until something holds, or the stream ends before.
    async fn until(&self, holds: impl Fn() -> bool) {
        while !holds() && !self.0.queues.has_ended() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
