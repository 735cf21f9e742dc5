//! What the properties of the outbox have in common: a relay that owns all shards, and events told apart by their text.

use std::time::{Duration, Instant};

use oncebox_core::error::BoxError;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::Event;
use oncebox_core::store::{
    Deliveries, EventFilter, HeldEvent, Lease, Outbox, OutboxAdmin, OutboxEntry, ParkedEvent, READY_TOPICS,
    SHARDS, Status, Store, StoreResult, StoredEvent,
};
use uuid::Uuid;

use super::fixture::Fixture;
use super::subject::Subject;

/// Longer than any test.
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// Bounds that no test reaches unless it wants to.
pub(super) const WIDE: BatchBounds = BatchBounds { messages: 10_000, bytes: 64 * 1024 * 1024 };
/// How long a property waits for what must happen soon.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// Where there is something to publish, page after page, as a relay looks.
pub async fn ready<S: Outbox>(store: &S, shards: &[u16]) -> StoreResult<Vec<(String, u16)>> {
    let (mut places, mut from) = (Vec::new(), String::new());
    loop {
        let page = store.ready_from(shards, &from, READY_TOPICS).await?;
        places.extend(page.places);
        match page.more_from {
            Some(next) => from = next,
            None => return Ok(places),
        }
    }
}

/// A database with a relay that owns all its shards.
pub(super) struct Relaying<T: Subject> {
    pub(super) inner: Fixture<T>,
    pub(super) store: T::Store,
    pub(super) relay: Uuid,
    pub(super) leases: Vec<Lease>,
}

impl<T: Subject> Relaying<T> {
    pub(super) async fn start() -> Result<Self, BoxError> {
        let inner = Fixture::<T>::start().await?;
        let (store, relay) = (inner.store.clone(), Uuid::now_v7());
        let leases = store.lease(relay, "first", HOUR).await?.held;
        assert_eq!(leases.len(), usize::from(SHARDS), "a relay alone owns all shards");
        Ok(Self { inner, store, relay, leases })
    }

    /// Writes events in a transaction of their own.
    pub(super) async fn emit(&self, events: &[Event]) -> Result<(), BoxError> {
        emit::<T>(&self.inner, &self.store, events).await
    }

    /// What is to be published of a topic now, in all shards.
    pub(super) async fn next(&self, topic: &str) -> Result<Vec<StoredEvent>, BoxError> {
        Ok(self.store.next_events(topic, &all_shards(), WIDE).await?)
    }

    /// [`Relaying::next`], the texts only.
    pub(super) async fn next_texts(&self, topic: &str) -> Result<Vec<String>, BoxError> {
        Ok(texts(&self.next(topic).await?))
    }

    /// Every event of the outbox, whatever its state.
    pub(super) async fn entries(&self) -> Result<Vec<OutboxEntry>, BoxError> {
        Ok(self.store.events(&every()).await?)
    }

    /// The event with that text.
    pub(super) async fn entry(&self, text: &str) -> Result<OutboxEntry, BoxError> {
        let found = self.entries().await?.into_iter().find(|entry| text_of(&entry.event) == text);
        found.ok_or_else(|| format!("{text} is not in the outbox").into())
    }

    /// The sink has confirmed these.
    pub(super) async fn publish(&self, texts: &[&str], keep: bool) -> Result<(), BoxError> {
        let published = self.seqs(texts).await?;
        self.record_deliveries(Deliveries { published, keep, ..self.deliveries() }).await
    }

    /// The delivery of this one failed.
    pub(super) async fn fail(&self, text: &str, delay: Duration) -> Result<(), BoxError> {
        let held = self.held(text, delay, Some("the broker said no")).await?;
        self.record_deliveries(Deliveries { held: vec![held], ..self.deliveries() }).await
    }

    /// The first failed, and the second was not tried because it is behind it.
    pub(super) async fn fail_with_follower(
        &self,
        failed: &str,
        behind: &str,
        delay: Duration,
    ) -> Result<(), BoxError> {
        let failed = self.held(failed, delay, Some("the broker said no")).await?;
        let behind = self.held(behind, delay, None).await?;
        self.record_deliveries(Deliveries { held: vec![failed, behind], ..self.deliveries() }).await
    }

    /// This one is given up.
    pub(super) async fn park(&self, text: &str) -> Result<(), BoxError> {
        let parked = ParkedEvent { seq: self.entry(text).await?.event.seq, error: "too large".to_owned() };
        self.record_deliveries(Deliveries { parked: vec![parked], ..self.deliveries() }).await
    }

    pub(super) async fn held(
        &self,
        text: &str,
        delay: Duration,
        error: Option<&str>,
    ) -> Result<HeldEvent, BoxError> {
        let seq = self.entry(text).await?.event.seq;
        Ok(HeldEvent { seq, delay, error: error.map(str::to_owned) })
    }

    pub(super) async fn record_deliveries(&self, deliveries: Deliveries) -> Result<(), BoxError> {
        Ok(self.store.record_deliveries(&deliveries).await?)
    }

    /// Deliveries of this relay, empty yet.
    pub(super) fn deliveries(&self) -> Deliveries {
        Deliveries { leases: self.leases.clone(), ..Deliveries::default() }
    }

    pub(super) async fn seqs(&self, texts: &[&str]) -> Result<Vec<i64>, BoxError> {
        let mut seqs = Vec::new();
        for text in texts {
            seqs.push(self.entry(text).await?.event.seq);
        }
        Ok(seqs)
    }

    /// The outbox in the status, counted up to a thousand.
    pub(super) async fn status(&self) -> Result<oncebox_core::store::OutboxStatus, BoxError> {
        Ok(self.store.status(1000).await?.outbox)
    }
}

/// Writes events in a transaction of their own, through that store.
pub(super) async fn emit<T: Subject>(
    f: &Fixture<T>,
    store: &T::Store,
    events: &[Event],
) -> Result<(), BoxError> {
    let mut txn = store.claim(&f.consumer, &[]).await?.txn;
    oncebox_core::outbox::emit_all::<T::Store>(&mut txn, events).await?;
    Ok(store.commit(txn, None).await?)
}

/// An event with that text as its payload.
pub(super) fn event(topic: &str, key: &str, text: &str) -> Event {
    Event::to(topic).key(key).bytes(text.to_owned())
}

pub(super) fn text_of(event: &StoredEvent) -> String {
    String::from_utf8_lossy(event.payload.as_deref().unwrap_or_default()).into_owned()
}

pub(super) fn texts(events: &[StoredEvent]) -> Vec<String> {
    events.iter().map(text_of).collect()
}

pub(super) fn all_shards() -> Vec<u16> {
    (0..SHARDS).collect()
}

pub(super) fn every() -> EventFilter {
    EventFilter { limit: 20_000, ..EventFilter::default() }
}

/// Asks again and again until the answer is there.
pub(super) async fn eventually<R, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<R, BoxError>
where
    F: Future<Output = Result<Option<R>, BoxError>>,
{
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            return Err(format!("{what}: not within {} seconds", WAIT_LIMIT.as_secs()).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
