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
    /// Until told to stop, the stream stands still, or the consumer is paused.
    async fn serve(
        &self,
        stream: &Stream,
        intake: &Intake,
        stop: &CancellationToken,
    ) -> Result<(), BoxError> {
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
                () = intake.paused() => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        Ok(())
    }

    /// Everything that was put before the oldest event of the outbox is settled. Retention goes by it, so what is not known
    /// is not told.
    async fn tell_how_far(&self, stream: &Stream) {
        let asked = Instant::now();
        if let Ok(status) = self.inner.store.status(1).await {
            let behind = status.outbox.oldest.unwrap_or_default() + MARGIN;
            if let Some(until) = asked.checked_sub(behind) {
                stream.nothing_waits(until);
            }
        }
    }
}

impl<S: OutboxAdmin> LocalQueue<S> {
    /// Hands over what the relay brings, until told to stop, or the consumer is paused.
    async fn hand_over(&self, intake: &Intake, stop: &CancellationToken) -> Result<(), BoxError> {
        let desk = Arc::clone(&self.inner.desk);
        let open = OpenStream::queue(Arc::clone(&self.inner.place));
        let open = if self.compares_payloads { open.compare_payloads() } else { open };
        let stream = intake.open(open.on_answer(move |answers| desk.answered(answers)));
        self.inner.desk.open(stream.clone());
        let served = self.serve(&stream, intake, stop).await;
        // First: a relay that finds the desk closed would take it for trouble.
        self.inner.desk.pause(intake.is_paused());
        self.inner.desk.close();
        stream.finish().await;
        self.inner.desk.clear();
        served
    }
}

impl<S: OutboxAdmin> Source for LocalQueue<S> {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        while !stop.is_cancelled() {
            if !intake.is_paused() {
                self.hand_over(&intake, &stop).await?;
                continue;
            }
            // What is put meanwhile stays in the outbox, and the relay leaves it there.
            self.inner.desk.pause(true);
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = intake.resumed() => {}
            }
            self.inner.desk.pause(false);
        }
        Ok(())
    }
}
