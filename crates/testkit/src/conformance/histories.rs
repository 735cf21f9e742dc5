//! Long random histories of an outbox, checked after each step against what a simple model allows.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::Event;
use oncebox_core::store::{
    Deliveries, EventFilter, HeldEvent, Outbox, OutboxAdmin, ParkedEvent, StoredEvent,
};

use super::relaying::{HOUR, Relaying, WIDE, all_shards, every};
use super::subject::{Subject, Verdict};

const TOPICS: [&str; 2] = ["orders", "returns"];
const KEYS: [Option<&str>; 4] = [Some("a"), Some("b"), Some(""), None];
const STEPS: usize = 60;

/// Why an event that is not published yet does not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Not,
    /// Its delivery failed; the next try is far away.
    Failed,
    /// It was not tried, because it is behind one that failed. When that one is gone it may come, or wait a little more.
    Behind,
}

/// The open events of one topic and key, by place.
type Open = BTreeMap<i64, Wait>;

struct History<T: Subject> {
    r: Relaying<T>,
    dice: Dice,
    open: BTreeMap<(&'static str, Option<Vec<u8>>), Open>,
    parked: Vec<i64>,
}

/// Whatever happened before: what comes of a key is its oldest events, nothing at or behind a failure, and everything if
/// nothing of it waits.
pub async fn a_random_history_keeps_the_order<T: Subject>() -> Verdict {
    for seed in 1..=3 {
        let (r, dice) = (Relaying::<T>::start().await?, Dice(seed));
        let mut history = History { r, dice, open: BTreeMap::new(), parked: Vec::new() };
        for step in 0..STEPS {
            let did = history.step().await?;
            for topic in TOPICS {
                let events = history.r.next(topic).await?;
                history
                    .check(topic, &events, true)
                    .map_err(|e| format!("seed {seed}, step {step}, {did}: {e}"))?;
            }
        }
    }
    Ok(())
}

impl<T: Subject> History<T> {
    async fn step(&mut self) -> Result<&'static str, BoxError> {
        match self.dice.below(9) {
            0..=2 => self.emit().await.map(|()| "events were written"),
            3..=5 => self.relay().await.map(|()| "deliveries were recorded"),
            6 => self.retry().await.map(|()| "an event was retried"),
            7 => self.give_up().await.map(|()| "an operator parked an event"),
            _ => self.discard().await.map(|()| "an event was dropped"),
        }
    }

    async fn emit(&mut self) -> Verdict {
        let mut written = Vec::new();
        for _ in 0..=self.dice.below(4) {
            let event = Event::to(self.dice.one_of(&TOPICS)).bytes("x");
            written.push(match self.dice.one_of(&KEYS) {
                Some(key) => event.key(key),
                None => event,
            });
        }
        self.r.emit(&written).await?;
        let entries = self.r.entries().await?;
        for entry in entries.iter().filter(|entry| written.iter().any(|event| event.id() == entry.event.id)) {
            self.of_key(&entry.event)?.insert(entry.event.seq, Wait::Not);
        }
        Ok(())
    }

    /// A relay's turn: some of what comes is delivered, some fails and holds back the rest of its key, some is given up.
    async fn relay(&mut self) -> Verdict {
        let topic = self.dice.one_of(&TOPICS);
        let bounds = BatchBounds { messages: 1 + self.dice.below(6), ..WIDE };
        let batch = self.r.store.next_events(topic, &all_shards(), bounds).await?;
        self.check(topic, &batch, false)?;
        let mut deliveries = Deliveries { keep: self.dice.below(2) == 0, ..self.r.deliveries() };
        let mut failed: Vec<(Option<bytes::Bytes>, Duration)> = Vec::new();
        for event in &batch {
            let seq = event.seq;
            let front = failed.iter().find(|(key, _)| key.is_some() && *key == event.key);
            if let Some((_, delay)) = front {
                deliveries.held.push(HeldEvent { seq, delay: *delay, error: None });
                let wait = if delay.is_zero() { Wait::Not } else { Wait::Behind };
                self.of_key(event)?.insert(seq, wait);
                continue;
            }
            match self.dice.below(6) {
                0 | 1 => {
                    let delay = self.dice.one_of(&[Duration::ZERO, HOUR]);
                    deliveries.held.push(HeldEvent { seq, delay, error: Some("no".to_owned()) });
                    let wait = if delay.is_zero() { Wait::Not } else { Wait::Failed };
                    self.of_key(event)?.insert(seq, wait);
                    failed.push((event.key.clone(), delay));
                }
                2 => {
                    deliveries.parked.push(ParkedEvent { seq, error: "never".to_owned() });
                    self.of_key(event)?.remove(&seq);
                    self.parked.push(seq);
                }
                _ => {
                    deliveries.published.push(seq);
                    self.of_key(event)?.remove(&seq);
                }
            }
        }
        self.r.record_deliveries(deliveries).await
    }

    async fn retry(&mut self) -> Verdict {
        let Some(filter) = self.some_event().await? else { return Ok(()) };
        self.r.store.retry_events(&filter).await?;
        for entry in self.r.store.events(&filter).await? {
            let seq = entry.event.seq;
            let was_parked = self.parked.contains(&seq);
            self.parked.retain(|parked| *parked != seq);
            let open = self.of_key(&entry.event)?;
            if was_parked || open.contains_key(&seq) {
                open.insert(seq, Wait::Not);
            }
        }
        Ok(())
    }

    async fn give_up(&mut self) -> Verdict {
        let Some(filter) = self.some_event().await? else { return Ok(()) };
        if self.r.store.park_events(&filter, "enough").await? > 0 {
            for open in self.open.values_mut() {
                open.retain(|seq, _| !filter.seqs.contains(seq));
            }
            self.parked.extend(&filter.seqs);
        }
        Ok(())
    }

    async fn discard(&mut self) -> Verdict {
        let Some(filter) = self.some_event().await? else { return Ok(()) };
        self.r.store.drop_events(&filter).await?;
        for open in self.open.values_mut() {
            open.retain(|seq, _| !filter.seqs.contains(seq));
        }
        self.parked.retain(|seq| !filter.seqs.contains(seq));
        Ok(())
    }

    async fn some_event(&mut self) -> Result<Option<EventFilter>, BoxError> {
        let entries = self.r.entries().await?;
        if entries.is_empty() {
            return Ok(None);
        }
        let seqs = vec![entries[self.dice.below(entries.len())].event.seq];
        Ok(Some(EventFilter { seqs, ..every() }))
    }

    /// Whether this may come now; and with `all`, whether everything comes that must.
    fn check(&self, topic: &str, events: &[StoredEvent], all: bool) -> Verdict {
        let expected = self.open.iter().filter(|((of, _), _)| *of == topic);
        for ((_, key), open) in expected {
            let came: Vec<i64> = events
                .iter()
                .filter(|event| event.key.as_deref() == key.as_deref())
                .map(|event| event.seq)
                .collect();
            // Without a key there is no order, and nobody waits for anybody.
            let fits = if key.is_some() {
                let until = open.iter().position(|(_, wait)| *wait == Wait::Failed).unwrap_or(open.len());
                let may: Vec<i64> = open.keys().copied().take(until).collect();
                let must = open.values().take_while(|wait| **wait == Wait::Not).count();
                may.starts_with(&came) && (!all || came.len() >= must)
            } else {
                let must = open.values().filter(|wait| **wait == Wait::Not).count();
                came.iter().all(|seq| open.get(seq) == Some(&Wait::Not)) && (!all || came.len() == must)
            };
            if !fits {
                return Err(format!("{topic} {key:?}: {came:?} came of {open:?}").into());
            }
        }
        let known = |event: &StoredEvent| {
            self.open.iter().any(|((of, _), open)| *of == topic && open.contains_key(&event.seq))
        };
        match events.iter().find(|event| !known(event)) {
            Some(event) => Err(format!("{} came, which is gone or of another topic", event.seq).into()),
            None => Ok(()),
        }
    }

    fn of_key(&mut self, event: &StoredEvent) -> Result<&mut Open, BoxError> {
        let topic = TOPICS.into_iter().find(|topic| **topic == *event.topic).ok_or("an unknown topic")?;
        Ok(self.open.entry((topic, event.key.as_deref().map(<[u8]>::to_vec))).or_default())
    }
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn one_of<E: Copy>(&mut self, of: &[E]) -> E {
        of[self.below(of.len())]
    }
}
