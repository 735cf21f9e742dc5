//! Events that are not published before their time, and those whose time is over. A real relay decides; the store keeps them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use oncebox_core::backoff::Backoff;
use oncebox_core::error::{BoxError, retry};
use oncebox_core::inbox::RetryPolicy;
use oncebox_core::outbox::{ByEvent, Event, OutgoingEvent, Relay};
use oncebox_core::store::{EventFilter, EventState, Outbox, OutboxAdmin, OutboxEntry, Status};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::fixture::Fixture;
use super::relaying::{self, HOUR, Relaying, event, eventually, every, text_of};
use super::subject::{Subject, Verdict};

/// A relay at work, whose sink takes notes.
struct AtWork<T: Subject> {
    inner: Fixture<T>,
    store: T::Store,
    notes: Notes,
    stop: CancellationToken,
    relay: JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

/// An event that was delivered, and what the database's clock said then.
#[derive(Clone)]
struct Note {
    text: String,
    at_ms: i64,
}

impl<T: Subject> AtWork<T> {
    /// The first delivery of an event with the text `fails once` fails.
    async fn start() -> Result<Self, BoxError> {
        let inner = Fixture::<T>::start().await?;
        let (store, notes, stop) = (inner.store.clone(), Notes::default(), CancellationToken::new());
        let (asked, taken) = (store.clone(), notes.clone());
        let deliver = move |event: OutgoingEvent| {
            let (store, notes) = (asked.clone(), taken.clone());
            async move {
                let text = String::from_utf8_lossy(event.payload().map_or(b"", |bytes| bytes)).into_owned();
                if text == "fails once" && event.attempts() == 0 {
                    return Err(retry("not yet"));
                }
                let at_ms = store.clock_ms().await?;
                notes.0.lock().unwrap_or_else(PoisonError::into_inner).push(Note { text, at_ms });
                Ok(())
            }
        };
        let soon = Backoff::new(Duration::from_millis(20), Duration::from_millis(20));
        let sink = ByEvent::from_fn(deliver).retry(RetryPolicy { attempts: u32::MAX, backoff: soon });
        let relay = tokio::spawn(Relay::new(store.clone()).sink(sink).serve(stop.clone()));
        Ok(Self { inner, store, notes, stop, relay })
    }

    async fn emit(&self, events: &[Event]) -> Result<(), BoxError> {
        relaying::emit::<T>(&self.inner, &self.store, events).await
    }

    /// A time that no test reaches.
    async fn later(&self) -> Result<SystemTime, BoxError> {
        Ok(time(self.store.clock_ms().await?) + HOUR)
    }

    fn texts(&self) -> Vec<String> {
        let notes = self.notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.iter().map(|note| note.text.clone()).collect()
    }

    /// Waits until these were delivered, in whatever order, and no others.
    async fn delivered(&self, texts: &[&str]) -> Verdict {
        let mut wanted = texts.to_vec();
        wanted.sort_unstable();
        let all = async || {
            let mut texts = self.texts();
            texts.sort_unstable();
            Ok((texts == wanted).then_some(()))
        };
        eventually(&format!("{wanted:?} are delivered"), all).await
    }

    fn at_ms(&self, text: &str) -> Result<i64, BoxError> {
        let notes = self.notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        let note = notes.iter().find(|note| note.text == text);
        Ok(note.ok_or_else(|| format!("{text} was not delivered"))?.at_ms)
    }

    async fn entry(&self, text: &str) -> Result<OutboxEntry, BoxError> {
        let entries = self.store.events(&every()).await?;
        let found = entries.into_iter().find(|entry| text_of(&entry.event) == text);
        found.ok_or_else(|| format!("{text} is not in the outbox").into())
    }

    /// Waits until the status says so many are delayed, and so many held.
    async fn waits(&self, delayed: u64, held: u64) -> Verdict {
        let ask = async || {
            let status = self.store.status(1000).await?.outbox;
            Ok(((status.delayed, status.held) == (delayed, held)).then_some(()))
        };
        eventually(&format!("{delayed} events are delayed and {held} held"), ask).await
    }

    /// The relay has stopped without trouble.
    async fn end(self) -> Verdict {
        self.stop.cancel();
        Ok(self.relay.await?)
    }
}

/// That time in milliseconds since 1970.
fn time(ms: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms.unsigned_abs())
}

fn in_state(state: EventState) -> EventFilter {
    EventFilter { state: Some(state), ..every() }
}

/// A delayed event says so until its time, and is pending from then on.
pub async fn a_delayed_event_says_its_time<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let now = r.store.clock_ms().await?;
    r.emit(&[
        event("orders", "a", "later").deliver_at(time(now + 3_600_123)),
        event("orders", "b", "past").deliver_at(time(now - 1000)),
        event("orders", "c", "soon").deliver_at(time(now + 300)),
        event("orders", "d", "now"),
    ])
    .await?;
    let later = r.entry("later").await?;
    assert_eq!((later.state, later.state_at_ms), (EventState::Delayed, Some(now + 3_600_123)));
    assert_eq!(later.event.deliver_at_ms, Some(now + 3_600_123));
    let past = r.entry("past").await?;
    assert_eq!((past.state, past.event.deliver_at_ms), (EventState::Pending, Some(now - 1000)));
    assert_eq!(
        (r.entry("now").await?.state, r.entry("now").await?.event.deliver_at_ms),
        (EventState::Pending, None)
    );

    let soon = async || Ok((r.entry("soon").await?.state == EventState::Pending).then_some(()));
    eventually("its time comes", soon).await?;
    assert!(r.store.clock_ms().await? >= now + 300);
    assert_eq!(r.store.events(&in_state(EventState::Delayed)).await?.len(), 1);
    assert_eq!(r.store.events(&in_state(EventState::Pending)).await?.len(), 3);
    assert_eq!(r.store.events(&in_state(EventState::Held)).await?.len(), 0);
    Ok(())
}

/// A delayed event holds back the later events of its topic and key and no others, is no failure, and does not let the
/// outbox look old.
pub async fn a_delayed_event_holds_back_its_key<T: Subject>() -> Verdict {
    let r = AtWork::<T>::start().await?;
    let later = r.later().await?;
    let keyless = |text: &'static str| Event::to("orders").bytes(text);
    r.emit(&[
        event("orders", "a", "before"),
        event("orders", "a", "delayed").deliver_at(later),
        event("orders", "a", "behind"),
        event("orders", "b", "other key"),
        event("returns", "a", "other topic"),
        keyless("delayed too").deliver_at(later),
        keyless("no key"),
    ])
    .await?;
    r.delivered(&["before", "other key", "other topic", "no key"]).await?;
    r.waits(2, 1).await?;
    r.emit(&[event("orders", "a", "written later")]).await?;
    r.waits(2, 2).await?;
    let status = r.store.status(1000).await?.outbox;
    assert_eq!((status.pending, status.parked, status.oldest), (4, 0, None));
    let delayed = r.entry("delayed").await?;
    assert_eq!((delayed.state, delayed.event.attempts, delayed.error), (EventState::Delayed, 0, None));
    assert_eq!(delayed.state_at_ms, delayed.event.deliver_at_ms);
    assert_eq!(r.entry("behind").await?.state, EventState::Held);
    assert_eq!(r.texts().len(), 4);
    r.end().await
}

/// Events of a key go out in the order in which they were written, none of them before its time.
pub async fn delayed_events_keep_their_order<T: Subject>() -> Verdict {
    let r = AtWork::<T>::start().await?;
    let now = r.store.clock_ms().await?;
    let delays = [("first", 300), ("second", 100), ("third", 600), ("fourth", 0)];
    let events = delays.map(|(text, ms)| event("orders", "a", text).deliver_at(time(now + ms)));
    r.emit(&events).await?;
    r.delivered(&["first", "second", "third", "fourth"]).await?;
    assert_eq!(r.texts(), ["first", "second", "third", "fourth"]);
    for (text, ms) in delays {
        let early = now + ms - r.at_ms(text)?;
        assert!(early <= 0, "{text} was delivered {early} ms too early");
    }
    r.end().await
}

/// Waiting behind a failed event does not make a delayed one due.
pub async fn a_delayed_event_behind_a_failed_one_keeps_its_time<T: Subject>() -> Verdict {
    let r = AtWork::<T>::start().await?;
    let now = r.store.clock_ms().await?;
    let delayed = event("orders", "a", "delayed").deliver_at(time(now + 500));
    r.emit(&[event("orders", "a", "fails once"), delayed, event("orders", "a", "behind")]).await?;
    r.delivered(&["fails once", "delayed", "behind"]).await?;
    assert_eq!(r.texts(), ["fails once", "delayed", "behind"]);
    assert!(r.at_ms("delayed")? >= now + 500);
    r.end().await
}

/// Whoever retries what failed does not send delayed events early; whoever asks for them does.
pub async fn a_delayed_event_is_sent_early_only_on_demand<T: Subject>() -> Verdict {
    let r = AtWork::<T>::start().await?;
    let later = r.later().await?;
    r.emit(&[
        event("orders", "a", "delayed").deliver_at(later),
        event("orders", "b", "other").deliver_at(later),
    ])
    .await?;
    r.emit(&[event("orders", "a", "behind")]).await?;
    r.waits(2, 1).await?;
    r.store.retry_events(&every()).await?;
    r.store.retry_events(&in_state(EventState::Held)).await?;
    r.waits(2, 1).await?;
    assert!(r.texts().is_empty());

    let of_a = EventFilter { key: Some(b"a".to_vec()), ..in_state(EventState::Delayed) };
    assert_eq!(r.store.retry_events(&of_a).await?, 1);
    r.delivered(&["delayed", "behind"]).await?;
    assert_eq!(r.texts(), ["delayed", "behind"]);
    assert_eq!(r.entry("other").await?.state, EventState::Delayed);
    r.end().await
}

/// What waits behind a delayed event goes on when that one is dropped.
pub async fn a_key_goes_on_without_its_delayed_event<T: Subject>() -> Verdict {
    let r = AtWork::<T>::start().await?;
    let later = r.later().await?;
    r.emit(&[event("orders", "a", "delayed").deliver_at(later), event("orders", "a", "behind")]).await?;
    r.waits(1, 1).await?;
    assert_eq!(r.store.drop_events(&in_state(EventState::Delayed)).await?, 1);
    r.delivered(&["behind"]).await?;
    r.end().await
}

/// The age of a delayed event is counted from its time.
pub async fn a_delayed_event_is_as_old_as_its_time<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let at = r.store.clock_ms().await? + 400;
    r.emit(&[event("orders", "a", "failed").deliver_at(time(at))]).await?;
    let due = async || Ok((r.store.clock_ms().await? > at).then_some(()));
    eventually("its time comes", due).await?;
    r.fail("failed", HOUR).await?;
    let age = r.status().await?.oldest.ok_or("a failed event waits")?;
    let most = r.store.clock_ms().await? - at;
    assert!(age.as_millis() <= most.unsigned_abs().into(), "{age:?}, but it is due for {most} ms only");
    assert_eq!((r.status().await?.delayed, r.status().await?.held), (0, 1));
    Ok(())
}

/// An event whose time is over is given up with the reason, and holds back nobody.
pub async fn an_expired_event_is_parked<T: Subject>() -> Verdict {
    let r = AtWork::<T>::start().await?;
    let now = r.store.clock_ms().await?;
    r.emit(&[
        event("orders", "a", "expired").expires_at(time(now - 1000)),
        event("orders", "a", "next"),
        event("orders", "b", "in time").expires_at(time(now + 3_600_000)),
    ])
    .await?;
    r.delivered(&["next", "in time"]).await?;
    let expired = r.entry("expired").await?;
    assert_eq!(expired.state, EventState::Parked);
    let reason = expired.error.unwrap_or_default();
    assert!(reason.starts_with("it expired at "), "{reason}");
    r.end().await
}
