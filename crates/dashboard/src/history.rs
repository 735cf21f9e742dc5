//! The last hour, in the memory of this process: a bounded ring of what the database has counted.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::backend::Look;

/// How often a sample is taken.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// How long they are kept.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// Of so many consumers, the first ones by name.
const MAX_CONSUMERS: usize = 200;
/// Rates are those of the last minute.
const RATE_OVER_MS: i64 = 60_000;
/// Charts begin with so much, until there is more.
const SHORTEST_MS: i64 = 60_000;

/// The counters of a consumer at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) applied: u64,
    pub(crate) duplicates: u64,
    pub(crate) lag: u64,
}

/// The outbox at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OutboxCounts {
    pub(crate) pending: u64,
    pub(crate) published: Option<u64>,
}

#[derive(Debug)]
struct Sample {
    at_ms: i64,
    consumers: BTreeMap<String, Counts>,
    outbox: OutboxCounts,
}

/// A line of a chart: times and values.
pub(crate) type Line = Vec<(i64, f64)>;

#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<Sample>);

impl History {
    /// Remembers what was seen; forgets what is too old.
    pub(crate) fn add(&mut self, look: &Look) {
        if self.0.back().is_some_and(|last| last.at_ms >= look.at_ms) {
            return;
        }
        let mut consumers: BTreeMap<String, Counts> = BTreeMap::new();
        for position in &look.status.positions {
            if consumers.len() >= MAX_CONSUMERS && !consumers.contains_key(&position.consumer) {
                continue;
            }
            let counts = consumers.entry(position.consumer.clone()).or_default();
            counts.applied += position.applied;
            counts.duplicates += position.duplicates.total();
        }
        for (consumer, tally) in &look.tallies {
            if let Some(counts) = consumers.get_mut(consumer) {
                counts.applied = counts.applied.max(tally.applied);
                counts.duplicates = counts.duplicates.max(tally.duplicates.total());
            }
        }
        for (place, seen) in &look.places {
            if let Some(counts) = consumers.get_mut(&place.consumer) {
                counts.lag += seen.lag.unwrap_or_default();
            }
        }
        let outbox = OutboxCounts { pending: look.status.outbox.pending, published: look.published };
        self.0.push_back(Sample { at_ms: look.at_ms, consumers, outbox });
        let oldest = look.at_ms - i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX);
        let most = (KEPT.as_secs() / SAMPLE_EVERY.as_secs()) as usize + 1;
        while self.0.len() > most || self.0.front().is_some_and(|first| first.at_ms < oldest) {
            self.0.pop_front();
        }
    }

    /// Since when there is something.
    pub(crate) fn since_ms(&self) -> Option<i64> {
        self.0.front().map(|sample| sample.at_ms)
    }

    /// What a chart shows: from when to when.
    pub(crate) fn window(&self, now_ms: i64) -> (i64, i64) {
        (self.since_ms().unwrap_or(now_ms).min(now_ms - SHORTEST_MS), now_ms)
    }

    /// How fast a counter of a consumer grew in the last minute; `None` before there are two samples.
    pub(crate) fn rate(&self, consumer: &str, counter: impl Fn(&Counts) -> u64) -> Option<f64> {
        self.rate_of(self.counted(consumer, counter))
    }

    /// How many events per second this process published in the last minute.
    pub(crate) fn publishing(&self) -> Option<f64> {
        self.rate_of(|sample| sample.outbox.published)
    }

    /// How fast a counter of a consumer grew between samples.
    pub(crate) fn rates(&self, consumer: &str, counter: impl Fn(&Counts) -> u64) -> Line {
        self.rates_of(self.counted(consumer, counter))
    }

    /// How fast this process published.
    pub(crate) fn publishing_rates(&self) -> Line {
        self.rates_of(|sample| sample.outbox.published)
    }

    /// How far a consumer was behind.
    pub(crate) fn lags(&self, consumer: &str) -> Line {
        let point = |sample: &Sample| Some((sample.at_ms, sample.consumers.get(consumer)?.lag as f64));
        self.0.iter().filter_map(point).collect()
    }

    /// How many events waited.
    pub(crate) fn waiting(&self) -> Line {
        self.0.iter().map(|sample| (sample.at_ms, sample.outbox.pending as f64)).collect()
    }

    /// What a counter of a consumer was. Before it was seen for the first time it had not begun, unless there were too many to see it.
    fn counted(&self, consumer: &str, counter: impl Fn(&Counts) -> u64) -> impl Fn(&Sample) -> Option<u64> {
        let first =
            self.0.iter().find(|sample| sample.consumers.contains_key(consumer)).map(|first| first.at_ms);
        move |sample| match sample.consumers.get(consumer) {
            Some(counts) => Some(counter(counts)),
            None => (Some(sample.at_ms) < first && sample.consumers.len() < MAX_CONSUMERS).then_some(0),
        }
    }

    fn rate_of(&self, counter: impl Fn(&Sample) -> Option<u64>) -> Option<f64> {
        let last = self.0.back()?;
        let first = self
            .0
            .iter()
            .find(|sample| sample.at_ms >= last.at_ms - RATE_OVER_MS && counter(sample).is_some())?;
        per_second((first.at_ms, counter(first)?), (last.at_ms, counter(last)?))
    }

    fn rates_of(&self, counter: impl Fn(&Sample) -> Option<u64>) -> Line {
        let point = |sample: &Sample| Some((sample.at_ms, counter(sample)?));
        let points: Vec<(i64, u64)> = self.0.iter().filter_map(point).collect();
        points.windows(2).filter_map(|two| Some((two[1].0, per_second(two[0], two[1])?))).collect()
    }
}

/// A counter that has become smaller belongs to rows that are gone: then nothing is known.
fn per_second((from_ms, from): (i64, u64), (to_ms, to): (i64, u64)) -> Option<f64> {
    let grown = to.checked_sub(from)?;
    (to_ms > from_ms).then(|| grown as f64 * 1_000.0 / (to_ms - from_ms) as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use oncebox_core::store::{Duplicates, PositionStatus, StoreStatus};

    /// A position with these counters.
    pub(crate) fn position(consumer: &str, partition: i32, applied: u64, duplicates: u64) -> PositionStatus {
        PositionStatus {
            consumer: consumer.to_owned(),
            topic: "orders".to_owned(),
            partition,
            next_offset: Some(10),
            log: None,
            caught_up_ms: Some(0),
            retired: false,
            epoch: 1,
            starts: 0,
            applied,
            duplicates: Duplicates::stored(duplicates, 0, 0, 0),
            updated_at_ms: 0,
        }
    }

    fn look(at_ms: i64, applied: u64) -> Look {
        let positions = vec![position("stock", 0, applied, 0), position("stock", 1, applied, applied / 10)];
        Look { at_ms, status: StoreStatus { positions, ..StoreStatus::default() }, ..Look::default() }
    }

    #[test]
    fn rates_are_those_of_the_last_minute_and_of_all_partitions() {
        let mut history = History::default();
        assert_eq!(history.rate("stock", |c| c.applied), None);
        for nth in 0..20 {
            history.add(&look(nth * 10_000, if nth < 10 { 0 } else { nth as u64 * 100 }));
        }
        assert_eq!(history.rate("stock", |c| c.applied), Some(20.0));
        assert_eq!(history.rate("stock", |c| c.duplicates), Some(1.0));
        assert_eq!(history.rate("nobody", |c| c.applied), None);
        assert_eq!(history.rates("stock", |c| c.applied).len(), 19);
    }

    #[test]
    fn a_consumer_that_is_new_counts_from_nothing_and_one_that_was_away_does_not() {
        let mut history = History::default();
        let nobody = |at_ms| Look { at_ms, ..Look::default() };
        history.add(&nobody(0));
        history.add(&look(10_000, 500));
        history.add(&nobody(20_000));
        history.add(&look(30_000, 500));
        assert_eq!(history.rates("stock", |c| c.applied), [(10_000, 100.0), (30_000, 0.0)]);
        assert_eq!(history.rates("nobody", |c| c.applied), []);
    }

    #[test]
    fn it_is_bounded_and_forgets_what_is_an_hour_old() {
        let mut history = History::default();
        for nth in 0..2_000 {
            history.add(&look(nth * 10_000, 0));
            history.add(&look(nth * 10_000, 0));
        }
        assert_eq!(history.0.len(), 361);
        assert_eq!(history.since_ms(), Some(1_639 * 10_000));
        history.add(&look(1_000_000_000, 0));
        assert_eq!(history.0.len(), 1, "after a long sleep");
    }

    #[test]
    fn a_counter_that_shrinks_says_nothing() {
        let mut history = History::default();
        history.add(&look(0, 500));
        history.add(&look(10_000, 5));
        assert_eq!(history.rate("stock", |c| c.applied), None);
        assert!(history.rates("stock", |c| c.applied).is_empty());
    }
}
