//! The inbox's end of a queue inside the database.

use std::sync::Arc;
use std::time::Duration;

use super::LocalQueue;
use crate::error::BoxError;
use crate::source::{CancellationToken, Instant, Intake, OpenStream, Source, Stream};
use crate::store::OutboxAdmin;

/// How often it is looked whether the inbox stands still.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Every how many looks the outbox is asked for its oldest event.
const ASK_EVERY: u32 = 30;
/// What may lie between writing an event and its commit, and between two clocks.
const MARGIN: Duration = Duration::from_secs(60);

impl<S: OutboxAdmin> LocalQueue<S> {
    /// Until told to stop, or the stream stands still.
    async fn serve(&self, stream: &Stream, stop: &CancellationToken) -> Result<(), BoxError> {
        for look in 0.. {
            if let Some(reason) = stream.stopped() {
                return Err(reason.into());
            }
            if look % ASK_EVERY == 0 {
                self.tell_how_far(stream).await;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        Ok(())
    }

    /// Everything that was put before the oldest event of the outbox is settled. Retention goes by it, so what is not known
    /// is not told.
    async fn tell_how_far(&self, stream: &Stream) {
        let asked = Instant::now();
        if let Ok(status) = self.0.store.status(1).await {
            let behind = status.outbox.oldest.unwrap_or_default() + MARGIN;
            if let Some(until) = asked.checked_sub(behind) {
                stream.nothing_waits(until);
            }
        }
    }
}

impl<S: OutboxAdmin> Source for LocalQueue<S> {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        let desk = Arc::clone(&self.0.desk);
        let open = OpenStream::queue(Arc::clone(&self.0.place));
        let stream = intake.open(open.on_answer(move |answers| desk.answered(answers)));
        self.0.desk.open(stream.clone());
        let served = self.serve(&stream, &stop).await;
        self.0.desk.close();
        stream.finish().await;
        self.0.desk.clear();
        served
    }
}
