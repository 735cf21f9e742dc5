//! One librdkafka producer, busy with one run of events at a time.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::failpoint::failpoint;
use oncebox_core::outbox::OutgoingEvent;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, PurgeConfig, ThreadedProducer};
use tracing::debug;

use super::failure::is_own;
use super::reports::{Report, Reports};
use super::trouble::Trouble;
use crate::error::Error;
use crate::settings::Kafka;

/// Reports arrive on its own thread.
pub(super) type Client = ThreadedProducer<Reports>;

type Record<'a> = BaseRecord<'a, [u8], [u8], usize>;

/// The wait while librdkafka's queue is full.
const QUEUE_FULL_WAIT: Duration = Duration::from_millis(2);

/// How long a new producer may take to find its brokers, twice, before it is used anyway.
const WARM_UP_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a new producer waits for a token, if it signs in with one.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Room for the headers that every event has, and a few of its own. More are welcome.
const USUAL_HEADERS: usize = 10;

pub(super) struct Producer {
    /// Present until the end.
    client: Option<Client>,
}

impl Producer {
    /// A producer that is about to publish to this topic. Blocks.
    pub(super) fn create(
        kafka: &Kafka,
        trouble: Arc<Trouble>,
        stall: Duration,
        topic: &str,
    ) -> Result<Self, Error> {
        let reports = Reports::new(kafka, trouble, stall);
        let client: Client = kafka
            .producer_config()?
            .create_with_context(reports)
            .map_err(|e| Error::configuration(&e, &kafka.secrets()))?;
        client.context().tokens().wait_and_hand_to(client.client(), TOKEN_TIMEOUT)?;
        // librdkafka asks for its producer id when metadata arrives, and if it has no connection at that moment it waits for
        // half a second. The first answer comes from a bootstrap broker, which it lets go of; the second from the broker it
        // keeps.
        let ask = || client.client().fetch_metadata(Some(topic), WARM_UP_TIMEOUT).is_ok();
        if !(ask() && ask()) {
            debug!(topic, "no broker answers yet");
        }
        Ok(Self { client: Some(client) })
    }

    pub(super) fn client(&self) -> &Client {
        self.client.as_ref().expect("present until the end")
    }

    /// Takes over what is new to sign in with.
    pub(super) fn renew_token(&self) {
        self.reports().tokens().hand_to(self.client().client());
    }

    fn reports(&self) -> &Reports {
        self.client().context()
    }

    /// Whether it can be used for another run.
    pub(super) fn is_clean(&self) -> bool {
        self.reports().is_clean()
    }

    /// Whether something failed, so that it cannot be used any more.
    pub(super) fn is_spent(&self) -> bool {
        self.reports().is_spent()
    }

    /// Whether it was given up because nothing was reported any more.
    pub(super) fn has_stalled(&self) -> bool {
        self.reports().has_stalled()
    }

    /// Why librdkafka has stopped it.
    pub(super) fn stopped_by(&self) -> Option<String> {
        self.reports().stopped_by()
    }

    /// Sends the events in their order and waits until all are reported or the run has stalled.
    pub(super) async fn send<'a>(
        &self,
        events: impl ExactSizeIterator<Item = &'a OutgoingEvent>,
    ) -> Result<Vec<Report>, Error> {
        self.reports().begin(events.len());
        let (mut topic, mut stopped) = ("", None);
        for (at, event) in events.enumerate() {
            topic = event.topic();
            // Once an event could not be sent, those behind it must not be either.
            let refused = match stopped {
                Some(_) => stopped,
                None => self.enqueue(record(event, at)).await?,
            };
            match refused {
                None => {}
                Some(code) if is_own(code) => self.reports().note(at, Report::Refused(code)),
                Some(code) => {
                    stopped = Some(code);
                    self.reports().note(at, Report::Failed(code));
                }
            }
        }
        failpoint("relay-after-produce");
        let purge = |what: PurgeConfig| self.client().purge(what.non_blocking());
        Ok(self.reports().all(topic, purge).await)
    }

    /// Hands a record to librdkafka, waiting while its queue is full. Returns why it does not take it.
    async fn enqueue(&self, mut record: Record<'_>) -> Result<Option<RDKafkaErrorCode>, Error> {
        let mut was_empty = false;
        loop {
            let Err((error, same)) = self.client().send(record) else { return Ok(None) };
            match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) if was_empty => {
                    let text = format!(
                        "queue.buffering.max.kbytes is too small for an event of {} bytes to {}",
                        same.payload.map_or(0, <[u8]>::len),
                        same.topic
                    );
                    return Err(Error::Configuration(text));
                }
                Some(RDKafkaErrorCode::QueueFull) if !self.reports().give_up_if_stalled() => {}
                Some(code) => return Ok(Some(code)),
                None => return Err(not_sent(same.topic, &error)),
            }
            record = same;
            tokio::time::sleep(QUEUE_FULL_WAIT).await;
            was_empty = self.client().in_flight_count() == 0;
        }
    }
}

fn not_sent(topic: &str, error: &KafkaError) -> Error {
    Error::request(format!("sending an event to {topic}"), error)
}

fn record(event: &OutgoingEvent, at: usize) -> Record<'_> {
    let mut headers = Some(OwnedHeaders::new_with_capacity(USUAL_HEADERS));
    event.visit_headers(|key, value| {
        headers = headers.take().map(|headers| headers.insert(Header { key, value }));
    });
    BaseRecord {
        topic: event.topic(),
        partition: None,
        payload: event.payload().map(|payload| &**payload),
        key: event.key(),
        timestamp: Some(event.created_at_ms()),
        headers,
        delivery_opaque: at,
    }
}

/// Nothing that was not sent yet is sent any more. The rest of the end takes a while, with an unreachable broker in
/// particular, and happens on a thread of its own.
impl Drop for Producer {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if client.in_flight_count() > 0 {
            client.purge(PurgeConfig::default().queue().inflight().non_blocking());
        }
        let ending = std::thread::Builder::new().name("oncebox-kafka-end".to_owned());
        // Without a thread it ends here and now.
        ending.spawn(move || drop(client)).ok();
    }
}
