//! The model sink: takes events, refuses them, hangs, or takes them and does not say so.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::backoff::Backoff;
use oncebox_core::error::BoxError;
use oncebox_core::inbox::RetryPolicy;
use oncebox_core::outbox::{Delivery, OutgoingEvent, Sink};
use oncebox_core::store::StoredEvent;
use uuid::Uuid;

use crate::coverage::Event;
use crate::plan::Mood;
use crate::world::{Actor, Inner, World};

/// How long a receiver that hangs takes to be given up by the sink itself. Most leases are over before.
const HANGS: Duration = Duration::from_secs(900);

/// What is known of every event that was ever committed, and how the receiver feels.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    pub(crate) mood: Option<Mood>,
    /// By `seq`, which the model never uses twice.
    pub(crate) known: BTreeMap<i64, Known>,
    commits: u64,
}

/// An event that was committed.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: Uuid,
    pub(crate) topic: String,
    pub(crate) key: Option<Bytes>,
    /// Not to be published before.
    pub(crate) deliver_at_ms: Option<i64>,
    /// When it expires.
    pub(crate) expires_ms: Option<i64>,
    /// Which commit brought it.
    pub(crate) commit: u64,
    pub(crate) delivered: u32,
    /// It was given up once; then later ones may have gone first.
    pub(crate) refused: bool,
}

/// The header that repeats the expiry of an event in a form that needs no parser.
pub(crate) const EXPIRES: &str = "expires";

fn number_in(event: &StoredEvent, header: &str) -> Option<i64> {
    std::str::from_utf8(event.headers.last(header)?).ok()?.parse().ok()
}

impl Receiver {
    pub(crate) fn committed(&mut self, seq: i64, event: &StoredEvent) {
        let known = Known {
            id: event.id,
            topic: event.topic.to_string(),
            key: event.key.clone(),
            deliver_at_ms: event.deliver_at_ms,
            expires_ms: number_in(event, EXPIRES),
            commit: self.commits,
            delivered: 0,
            refused: false,
        };
        self.known.insert(seq, known);
    }

    /// The next events belong to another transaction.
    pub(crate) fn next_commit(&mut self) {
        self.commits += 1;
    }
}

/// The sink of one life of a process.
pub(crate) struct ModelSink {
    pub(crate) world: World,
    pub(crate) actor: Actor,
}

impl Sink for ModelSink {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        self.world.alive(self.actor).await;
        let mood = self.world.lock().sink.mood;
        match mood {
            Some(Mood::Away) => {
                self.world.takes_time(self.actor).await;
                self.world.lock().saw(Event::SinkAway);
                return Err("the receiver is away".into());
            }
            Some(Mood::Panics) => {
                self.world.lock().saw(Event::SinkPanicked);
                std::panic::panic_any(crate::run::Planned);
            }
            _ => {}
        }
        let mut behind: BTreeMap<&[u8], Delivery> = BTreeMap::new();
        let mut deliveries = Vec::with_capacity(events.len());
        for event in events {
            // Whoever drops this future finds nothing sent after that.
            self.world.takes_time(self.actor).await;
            if let Some(fate) = event.key().and_then(|key| behind.get(key)) {
                deliveries.push(fate.clone());
                continue;
            }
            let delivery = self.world.lock().receive(event, mood);
            match delivery {
                Delivery::Retry { .. } | Delivery::Wait { .. } => {
                    behind.extend(event.key().map(|key| (key, Delivery::Behind)));
                }
                Delivery::NotTried => behind.extend(event.key().map(|key| (key, Delivery::NotTried))),
                _ => {}
            }
            deliveries.push(delivery);
        }
        match mood {
            Some(Mood::Hangs) => {
                self.world.lock().saw(Event::SinkHung);
                tokio::time::sleep(HANGS).await;
                Err("no answer came".into())
            }
            Some(Mood::LosesAnswers) => {
                self.world.lock().saw(Event::SinkLostAnswer);
                Err("the answer was lost".into())
            }
            _ => {
                self.world.takes_time(self.actor).await;
                Ok(deliveries)
            }
        }
    }

    /// One more than a topic may use.
    fn concurrency(&self) -> usize {
        3
    }

    fn batch_events(&self) -> usize {
        6
    }

    fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            attempts: 6,
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(60)),
        }
    }
}

impl Inner {
    /// An event is given up; later ones of its key may go first.
    pub(crate) fn refused(&mut self, seq: i64) {
        if let Some(known) = self.sink.known.get_mut(&seq) {
            known.refused = true;
        }
    }

    fn receive(&mut self, event: &OutgoingEvent, mood: Option<Mood>) -> Delivery {
        match mood {
            Some(Mood::FailsSome) if self.one_in(2) => {
                self.saw(Event::SinkFailedOne);
                // In every way in which an event may stay; by its number, so that no chance is used up.
                return match event.seq() % 3 {
                    0 => Delivery::Wait { after: Duration::from_secs(2) },
                    1 => Delivery::NotTried,
                    _ => Delivery::Retry { error: "no".to_owned(), after: None },
                };
            }
            Some(Mood::RejectsSome) if self.one_in(2) => {
                self.saw(Event::SinkRejected);
                self.refused(event.seq());
                return Delivery::Reject { error: "never".to_owned() };
            }
            _ => {}
        }
        self.check_delivered(event);
        self.note(|| format!("event {} is published", event.seq()));
        if let Some(known) = self.sink.known.get_mut(&event.seq()) {
            known.delivered += 1;
            let again = known.delivered > 1;
            self.saw(if again { Event::PublishedAgain } else { Event::Published });
        }
        Delivery::Delivered
    }
}
