//! Many dead letters once more: at a rate, with the truth about what became of them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::audit::{Operator, as_parameters};
use crate::backoff;
use crate::error::{describe, describe_whole};
use crate::inbox::{Apply, Identity, OnFailure, Replay, Replayed, replay};
use crate::names::ConsumerName;
use crate::store::{Audit, DeadFilter, DeadLetters, DeadSummary, ErrorClass, InboxStore, StoreResult};

/// How many letters are in memory at once.
const PAGE_ROWS: u32 = 200;
/// How often the audit is told how far it is.
const NOTE_INTERVAL: Duration = Duration::from_secs(2);
/// How many failures are told one by one.
const MAX_FAILURES: usize = 10_000;
/// How often a letter is tried again that something was in the way of.
const MAX_TRIES: u32 = 5;

/// A consumer whose letters can be replayed.
#[derive(Debug, Clone)]
pub struct Target<A> {
    /// The consumer.
    pub consumer: ConsumerName,
    /// How a letter without an id gets one.
    pub identity: Identity,
    /// What becomes of messages that fail: under [`OnFailure::ParkKey`] no letter passes an earlier one of its key.
    pub on_failure: OnFailure,
    /// What applies them.
    pub handler: A,
}

/// What is to be replayed, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayOrder {
    /// Which letters; its page and its order do not matter. They are replayed in the order of their numbers.
    pub filter: DeadFilter,
    /// At most this many.
    pub at_most: Option<u64>,
    /// At most so many in a second.
    pub per_second: Option<u32>,
    /// Also before earlier letters of the same key.
    pub force: bool,
}

/// What became of letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// The effect is applied.
    pub applied: u64,
    /// The effect was there before; the letter was only removed.
    pub already_applied: u64,
    /// Failed again; the letter stays.
    pub failed: u64,
    /// Behind an earlier letter of the same key; the letter stays.
    pub behind: u64,
    /// Replayed or dropped by somebody else meanwhile.
    pub gone: u64,
}

impl ReplayCounts {
    /// How many letters were looked at.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.applied + self.already_applied + self.failed + self.behind + self.gone
    }

    /// The same as JSON.
    #[must_use]
    pub fn as_json(&self) -> Value {
        json!({
            "applied": self.applied, "already_applied": self.already_applied, "failed": self.failed,
            "behind": self.behind, "gone": self.gone,
        })
    }
}

/// A letter that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayFailure {
    /// Its number.
    pub number: i64,
    /// Why, with the values that the error quotes: for who asked.
    pub reason: String,
}

/// What came of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// How many ended how.
    pub counts: ReplayCounts,
    /// Those that stay, with the reason: the first ten thousand.
    pub failures: Vec<ReplayFailure>,
    /// Whether it was told to stop before the end.
    pub stopped: bool,
}

impl<S: InboxStore + Audit> Operator<S> {
    /// Replays what is there now and fits, in the order of the numbers; what becomes a letter meanwhile is left for the next time.
    /// `progress` is called after each letter. After `stop` the letter in flight ends, and no other begins.
    ///
    /// # Errors
    /// If the database is away. What was replayed until then is replayed, and in the audit.
    pub async fn replay<A: Apply<S>>(
        &self,
        targets: &[Target<A>],
        order: &ReplayOrder,
        stop: &CancellationToken,
        progress: &(dyn Fn(&ReplayCounts) + Send + Sync),
    ) -> StoreResult<ReplayReport> {
        let mut parameters = as_parameters(&order.filter);
        let settings = [("at_most", order.at_most), ("per_second", order.per_second.map(u64::from))];
        for (name, value) in settings {
            if let Some(value) = value {
                parameters[name] = json!(value);
            }
        }
        if order.force {
            parameters["force"] = json!(true);
        }
        let consumer = order.filter.consumer.as_deref().unwrap_or_default();
        let ongoing = self.begin(self.action("replay").to(consumer).with(parameters)).await?;
        let mut run = Run { store: &self.store, targets, order, report: ReplayReport::default() };
        let mut noted = Instant::now();
        let done: StoreResult<()> = async {
            let mut letters = Letters::new(&self.store, &order.filter, order.at_most).await?;
            let mut pace = Pace::new(order.per_second);
            while let Some(letter) = letters.next().await? {
                if !pace.wait(stop).await {
                    run.report.stopped = true;
                    break;
                }
                run.one(&letter).await?;
                progress(&run.report.counts);
                if noted.elapsed() >= NOTE_INTERVAL {
                    ongoing.so_far(run.report.counts.as_json()).await;
                    noted = Instant::now();
                }
            }
            Ok(())
        }
        .await;
        let mut result = run.report.counts.as_json();
        match done {
            Ok(()) => {
                if run.report.stopped {
                    result["stopped"] = json!(true);
                }
                ongoing.ended(result).await;
                Ok(run.report)
            }
            Err(error) => {
                ongoing.so_far(result).await;
                ongoing.failed(describe(&error)).await;
                Err(error)
            }
        }
    }
}

/// The letters that a filter means, a page at a time, up to the newest of the beginning.
pub(super) struct Letters<'a, S> {
    store: &'a S,
    filter: DeadFilter,
    page: std::vec::IntoIter<DeadSummary>,
    left: u64,
}

impl<'a, S: DeadLetters> Letters<'a, S> {
    pub(super) async fn new(store: &'a S, filter: &DeadFilter, at_most: Option<u64>) -> StoreResult<Self> {
        let newest = DeadFilter { newest_first: true, limit: 1, ..DeadFilter::default() };
        let newest = store.dead_letters(&newest).await?.pop().map_or(0, |letter| letter.number);
        let filter = DeadFilter {
            before: Some(newest.saturating_add(1)),
            newest_first: false,
            limit: PAGE_ROWS,
            ..filter.clone()
        };
        Ok(Self { store, filter, page: Vec::new().into_iter(), left: at_most.unwrap_or(u64::MAX) })
    }

    pub(super) async fn next(&mut self) -> StoreResult<Option<DeadSummary>> {
        if self.left == 0 {
            return Ok(None);
        }
        if self.page.len() == 0 {
            self.page = self.store.dead_letters(&self.filter).await?.into_iter();
        }
        let next = self.page.next();
        if let Some(letter) = &next {
            self.filter.after = letter.number;
            self.left -= 1;
        }
        Ok(next)
    }
}

struct Run<'a, S, A> {
    store: &'a S,
    targets: &'a [Target<A>],
    order: &'a ReplayOrder,
    report: ReplayReport,
}

impl<S: InboxStore, A: Apply<S>> Run<'_, S, A> {
    async fn one(&mut self, letter: &DeadSummary) -> StoreResult<()> {
        let target = self.targets.iter().find(|target| target.consumer.as_str() == letter.consumer);
        let Some(target) = target else {
            self.failed(letter.number, format!("no [[inbox]] has the consumer {}", letter.consumer));
            return Ok(());
        };
        let how = Replay {
            consumer: &target.consumer,
            identity: &target.identity,
            in_order: target.on_failure == OnFailure::ParkKey && !self.order.force,
        };
        let mut tries = 0;
        let replayed = loop {
            match replay(self.store, &target.handler, how, letter.number).await {
                // Something was in the way: a handler of the daemon, or another replay.
                Err(e) if e.class == ErrorClass::Transient && tries < MAX_TRIES => {
                    tries += 1;
                    tokio::time::sleep(backoff::QUESTION.delay(tries)).await;
                }
                Err(e) if e.class == ErrorClass::Transient => break Replayed::Failed(describe_whole(&e)),
                other => break other?,
            }
        };
        let counts = &mut self.report.counts;
        match replayed {
            Replayed::Applied => counts.applied += 1,
            Replayed::Duplicate => counts.already_applied += 1,
            Replayed::Gone => counts.gone += 1,
            Replayed::Failed(reason) => self.failed(letter.number, reason),
            Replayed::OfAnother(consumer) => {
                self.failed(letter.number, format!("it belongs to the consumer {consumer}"));
            }
            Replayed::Behind(first) => {
                counts.behind += 1;
                self.stays(letter.number, behind(first));
            }
        }
        Ok(())
    }

    fn failed(&mut self, number: i64, reason: String) {
        self.report.counts.failed += 1;
        self.stays(number, reason);
    }

    fn stays(&mut self, number: i64, reason: String) {
        if self.report.failures.len() < MAX_FAILURES {
            self.report.failures.push(ReplayFailure { number, reason });
        }
    }
}

/// Why a letter has to wait for another.
pub(super) fn behind(first: i64) -> String {
    format!(
        "behind dead letter {first} of the same key (on_failure = \"park-key\"): replay or drop that one first, or use --force"
    )
}

/// So many in a second, evenly.
struct Pace {
    every: Option<Duration>,
    next: Instant,
}

impl Pace {
    fn new(per_second: Option<u32>) -> Self {
        let every = per_second.filter(|rate| *rate > 0).map(|rate| Duration::from_secs(1) / rate);
        Self { every, next: Instant::now() }
    }

    /// Waits for the next turn. False after `stop`.
    async fn wait(&mut self, stop: &CancellationToken) -> bool {
        if let Some(every) = self.every {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep_until(self.next) => {}
            }
            // A slow handler is not made up for by a rush.
            self.next = Instant::now().max(self.next) + every;
        }
        !stop.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept() {
        let (stop, began) = (CancellationToken::new(), Instant::now());
        let mut pace = Pace::new(Some(10));
        for _ in 0..21 {
            assert!(pace.wait(&stop).await);
        }
        assert_eq!(began.elapsed().as_millis() / 100, 20);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let late = Instant::now();
        for _ in 0..11 {
            assert!(pace.wait(&stop).await);
        }
        assert!(late.elapsed() >= Duration::from_millis(900), "no rush after a pause: {:?}", late.elapsed());
        stop.cancel();
        assert!(!pace.wait(&stop).await);
    }
}
