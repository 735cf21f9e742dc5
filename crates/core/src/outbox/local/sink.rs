//! The relay's end of a queue inside the database.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::desk::{Brought, Desk};
use crate::error::BoxError;
use crate::message::Record;
use crate::names::ConsumerName;
use crate::outbox::sink::{Delivery, OutgoingEvent, Sink};
use crate::source::Answer;

/// How long a batch waits for its last message. One that is tried again takes longer, and must not keep the others.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
/// When to ask for what was not answered by then.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often a look is taken whether a full stream has room again.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How many batches are under way at once, and how many events each has.
const BATCHES: usize = 5;
const BATCH_EVENTS: usize = 250;

/// What a relay delivers the events of a [`LocalQueue`](super::LocalQueue) to.
pub struct LocalSink {
    desk: Arc<Desk>,
    consumer: ConsumerName,
    since_ms: i64,
    /// How many more of the events that were there before may have been in somebody's hands when his process ended.
    suspects: AtomicUsize,
}

impl LocalSink {
    pub(super) fn new(desk: Arc<Desk>, consumer: &ConsumerName, since_ms: i64) -> Self {
        let suspects = AtomicUsize::new(BATCHES * BATCH_EVENTS);
        Self { desk, consumer: consumer.clone(), since_ms, suspects }
    }

    /// The crash guard looks at what may have been under way when a process ended: the first events of all that were written
    /// before this one began.
    fn is_suspect(&self, event: &OutgoingEvent) -> bool {
        let fewer = |left: usize| left.checked_sub(1);
        event.created_at_ms() < self.since_ms
            && self.suspects.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }

    fn record(&self, place: &str, event: &OutgoingEvent) -> Record {
        let mut record = event.carried(place);
        record.redelivered = self.is_suspect(event);
        record
    }
}

impl Sink for LocalSink {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let mut answers = Vec::with_capacity(events.len());
        for event in events {
            answers.push(loop {
                match self.desk.bring(event.id(), |place| self.record(place, event)) {
                    Brought::UnderWay(answer) => break answer,
                    Brought::Full => tokio::time::sleep(LOOK_EVERY).await,
                    Brought::Closed => {
                        return Err(format!("the inbox {} does not run at the moment", self.consumer).into());
                    }
                }
            });
        }
        let until = Instant::now() + ANSWERED_WITHIN;
        let mut waiting_keys: HashSet<&[u8]> = HashSet::new();
        let mut deliveries = Vec::with_capacity(events.len());
        for (event, answer) in events.iter().zip(answers) {
            let (error, after) = match timeout_at(until, answer).await {
                Ok(Ok(Answer::GivenBack(given_back))) => (given_back.reason.to_string(), None),
                Ok(Ok(_)) => {
                    deliveries.push(Delivery::Delivered);
                    continue;
                }
                Ok(Err(_)) => ("the inbox ended before it was applied".to_owned(), None),
                Err(_) => ("it is not applied yet, or tried again".to_owned(), Some(ASK_AGAIN)),
            };
            let is_first = event.key().is_none_or(|key| waiting_keys.insert(key));
            deliveries.push(if is_first { Delivery::Retry { error, after } } else { Delivery::Behind });
        }
        Ok(deliveries)
    }

    fn concurrency(&self) -> usize {
        BATCHES
    }

    fn is_paused(&self) -> bool {
        self.desk.is_paused()
    }

    fn batch_events(&self) -> usize {
        BATCH_EVENTS
    }

    /// The message is on its way to its inbox, and sent to nobody.
    fn system(&self) -> Option<&'static str> {
        None
    }
}

impl fmt::Debug for LocalSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSink").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}
