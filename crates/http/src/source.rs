//! The source: it opens the door while it runs.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::outbox::LocalQueue;
use oncebox_core::source::{CancellationToken, Instant, Intake, LogId, OpenStream, Source, Stream};
use oncebox_core::store::OutboxAdmin;
use uuid::Uuid;

use crate::door::{Counter, Door, Run, Waiting, Way};
use crate::identity;
use crate::inbox::{HttpInbox, Mode};

/// How often the inbox is told that nothing waits elsewhere.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The source half of an [`HttpInbox`]: give it to the worker of that inbox.
#[derive(Debug)]
pub struct HttpSource {
    inbox: Arc<HttpInbox>,
    door: Arc<Door>,
}

impl HttpSource {
    pub(crate) fn new(inbox: Arc<HttpInbox>, door: Arc<Door>) -> Self {
        Self { inbox, door }
    }

    /// The source of an inbox that [accepts](HttpInbox::accept): requests are answered when their messages are stored in this
    /// queue, and the messages are applied from there. The relay needs its other end, [`LocalQueue::sink`].
    pub fn through<S: OutboxAdmin>(self: Arc<Self>, queue: LocalQueue<S>) -> AcceptSource<S> {
        AcceptSource { http: self, queue }
    }

    /// Takes requests until told to stop, or the consumer is paused.
    async fn take(&self, intake: &Intake, stop: &CancellationToken) -> Result<(), BoxError> {
        let waiting = Arc::new(Waiting::default());
        let answers = Arc::clone(&waiting);
        // Nothing is delivered again but what is sent again.
        let open = OpenStream::queue(self.inbox.path.as_str()).system("http").says_redelivered();
        let compares = self.inbox.compares_bodies(&intake.settings().identity.id);
        let open = if compares { open.compare_payloads() } else { open };
        let stream = intake.open(open.on_answer(move |answered| answers.answered(answered)));
        let log = LogId::new(Uuid::now_v7().to_string());
        let way = Way::Apply(Counter { stream: stream.clone(), log, waiting });
        let opened = self.door.open(Run { intake: intake.clone(), way });
        let served = self.serve(&stream, intake, stop).await;
        // First: who comes now is told to come again. Who came before gets an answer.
        drop(opened);
        stream.finish().await;
        served
    }

    /// Until told to stop, the stream stands still, or the consumer is paused.
    async fn serve(
        &self,
        stream: &Stream,
        intake: &Intake,
        stop: &CancellationToken,
    ) -> Result<(), BoxError> {
        while !stop.is_cancelled() && !intake.is_paused() {
            if let Some(reason) = stream.stopped() {
                return Err(reason.into());
            }
            // A request that is still being read may have been sent before.
            let asked = Instant::now();
            stream.nothing_waits(asked.checked_sub(self.inbox.limits.body_within).unwrap_or(asked));
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = intake.paused() => {}
                () = tokio::time::sleep(TELL_EVERY) => {}
            }
        }
        Ok(())
    }
}

impl Source for HttpSource {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        if self.inbox.mode == Mode::Accept {
            return Err("an inbox that accepts reads from a queue: run `source.through(queue)`".into());
        }
        identity::check(&intake.settings().identity, &self.inbox)?;
        while !stop.is_cancelled() {
            if intake.is_paused() {
                let _paused = self.door.pause();
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = intake.resumed() => {}
                }
            } else {
                // Also as long as nobody knows: who comes now waits for a moment.
                self.take(&intake, &stop).await?;
            }
        }
        Ok(())
    }
}

/// The source of an inbox that accepts: see [`HttpSource::through`].
#[derive(Debug)]
pub struct AcceptSource<S> {
    http: Arc<HttpSource>,
    queue: LocalQueue<S>,
}

impl<S: OutboxAdmin> Source for AcceptSource<S> {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        let HttpSource { inbox, door } = &*self.http;
        if inbox.mode == Mode::Apply {
            return Err("an inbox that applies has no queue: run the source itself".into());
        }
        let identity = &intake.settings().identity;
        identity::check(identity, inbox)?;
        let queue = self.queue.clone();
        let queue = if inbox.compares_bodies(&identity.id) { queue.compare_payloads() } else { queue };
        let way = Way::Accept(Arc::new(queue.clone()));
        let _opened = door.open(Run { intake: intake.clone(), way });
        queue.run(intake, stop).await
    }
}
