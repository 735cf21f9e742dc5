//! How far a partition is behind, in messages and in seconds.
//!
//! Only the source knows how many messages there are ([`Stream::lag_is`](crate::source::Stream::lag_is)). The seconds are
//! measured here: the age of the oldest message that was handed over and is not settled, by the time in it (or when it
//! arrived, if it has none). Of a hundred messages one is looked at, so the age may be that of one that came shortly before.
//! While messages wait that were not handed over yet, nobody knows their age: then it is how long that has been so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Monitor, lock};
use crate::clock::Clock;

/// Every so many messages one is looked at.
const SAMPLE_EVERY: i64 = 100;

/// How far a partition of this process is behind.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LagReport {
    /// The consumer.
    pub consumer: String,
    /// The topic or queue.
    pub topic: Arc<str>,
    /// The partition; 0 where there is none.
    pub partition: i32,
    /// How many messages are not settled, if the source knows.
    pub messages: Option<u64>,
    /// The age of the oldest of them.
    pub age: Duration,
}

/// How far a consumer is behind, in the partitions of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct ConsumerLag {
    /// How many messages are not settled.
    pub messages: u64,
    /// The age of the oldest of them.
    pub age: Duration,
    /// How many partitions it has.
    pub partitions: usize,
}

/// What is known of a partition while it is open.
#[derive(Debug)]
pub(crate) struct PartitionLag {
    number: u64,
    monitor: Monitor,
    consumer: String,
    topic: Arc<str>,
    partition: i32,
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    messages: Option<u64>,
    /// Messages wait although none is in hand, since then.
    waiting_since: Option<Instant>,
    /// Offset and time of some of the messages in hand, ascending; the first one at or before the oldest.
    samples: VecDeque<(i64, i64)>,
    last_received: Option<i64>,
}

impl Monitor {
    /// Registers a partition; its entry goes with it.
    pub(crate) fn open_partition(
        &self,
        consumer: &str,
        topic: &Arc<str>,
        partition: i32,
        clock: Clock,
    ) -> Arc<PartitionLag> {
        self.0.lags.add(|number| PartitionLag {
            number,
            monitor: self.clone(),
            consumer: consumer.to_owned(),
            topic: Arc::clone(topic),
            partition,
            clock,
            inner: Mutex::default(),
        })
    }

    /// How far each partition of this process is behind, by consumer, topic and partition.
    #[must_use]
    pub fn lags(&self) -> Vec<LagReport> {
        let mut lags: Vec<LagReport> = self.0.lags.all().iter().map(|lag| lag.report()).collect();
        lags.sort_by(|a, b| (&a.consumer, &a.topic, a.partition).cmp(&(&b.consumer, &b.topic, b.partition)));
        lags
    }
}

impl ConsumerLag {
    /// The sum of messages, and the greatest age.
    pub fn of<'a>(partitions: impl IntoIterator<Item = &'a LagReport>) -> Self {
        partitions.into_iter().fold(Self::default(), |sum, partition| Self {
            messages: sum.messages + partition.messages.unwrap_or_default(),
            age: sum.age.max(partition.age),
            partitions: sum.partitions + 1,
        })
    }
}

impl PartitionLag {
    /// The source says how many messages are not settled.
    pub(crate) fn is(&self, messages: u64) {
        let mut inner = lock(&self.inner);
        inner.messages = Some(messages);
        if messages == 0 || !inner.samples.is_empty() {
            inner.waiting_since = None;
        } else if inner.waiting_since.is_none() {
            inner.waiting_since = Some(Instant::now());
        }
    }

    /// A message was handed over. Offsets ascend.
    pub(crate) fn received(&self, offset: i64, timestamp_ms: Option<i64>) {
        let mut inner = lock(&self.inner);
        inner.last_received = Some(offset);
        if inner.samples.back().is_none_or(|(last, _)| offset - last >= SAMPLE_EVERY) {
            inner.samples.push_back((offset, timestamp_ms.unwrap_or_else(|| self.clock.now_ms())));
        }
    }

    /// Everything below this offset is settled.
    pub(crate) fn settled_below(&self, next: i64) {
        let mut inner = lock(&self.inner);
        if inner.last_received.is_none_or(|last| last < next) {
            inner.samples.clear();
        }
        while inner.samples.get(1).is_some_and(|(second, _)| *second <= next) {
            inner.samples.pop_front();
        }
    }

    fn report(&self) -> LagReport {
        let inner = lock(&self.inner);
        let age = match inner.samples.front() {
            Some((_, time_ms)) => {
                Duration::from_millis(self.clock.now_ms().saturating_sub(*time_ms).max(0).unsigned_abs())
            }
            None => inner.waiting_since.map(|since| since.elapsed()).unwrap_or_default(),
        };
        LagReport {
            consumer: self.consumer.clone(),
            topic: Arc::clone(&self.topic),
            partition: self.partition,
            messages: inner.messages,
            age,
        }
    }
}

impl Drop for PartitionLag {
    fn drop(&mut self) {
        self.monitor.0.lags.remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds_ago(seconds: i64) -> Option<i64> {
        Some(Clock::system().now_ms() - seconds * 1_000)
    }

    fn age(monitor: &Monitor) -> u64 {
        monitor.lags()[0].age.as_secs()
    }

    #[test]
    fn the_oldest_message_in_hand_has_the_age() {
        let monitor = Monitor::default();
        let lag = monitor.open_partition("stock", &"orders".into(), 0, Clock::system());
        assert_eq!(age(&monitor), 0);
        for offset in 0..1_000 {
            lag.received(offset, seconds_ago(2_000 - offset));
        }
        assert!(age(&monitor) >= 2_000);
        lag.settled_below(550);
        let now = age(&monitor);
        assert!((1_450..1_600).contains(&now), "{now}");
        lag.settled_below(1_000);
        assert_eq!(age(&monitor), 0, "nothing is in hand");
        lag.received(1_000, seconds_ago(7));
        assert!((7..60).contains(&age(&monitor)), "the first one after a rest is looked at");
        lag.received(1_001, seconds_ago(-100));
        lag.settled_below(1_001);
        assert!(age(&monitor) < 60, "a time in the future is no age");
    }

    #[test]
    fn what_was_not_handed_over_is_as_old_as_the_wait_for_it() {
        let monitor = Monitor::default();
        let lag = monitor.open_partition("stock", &"orders".into(), 0, Clock::system());
        lag.is(3);
        std::thread::sleep(Duration::from_millis(5));
        let report = monitor.lags().remove(0);
        assert!(report.messages == Some(3) && report.age >= Duration::from_millis(5), "{report:?}");
        lag.is(0);
        assert_eq!(monitor.lags()[0].age, Duration::ZERO);
        drop(lag);
        assert_eq!(monitor.lags(), [], "a partition that is gone has no lag");
    }

    #[test]
    fn a_consumer_has_the_sum_and_the_greatest_age() {
        let monitor = Monitor::default();
        let open = |number| monitor.open_partition("stock", &"orders".into(), number, Clock::system());
        let (one, two) = (open(1), open(0));
        one.is(3);
        two.is(4);
        two.received(0, seconds_ago(50));
        let lags = monitor.lags();
        assert_eq!([lags[0].partition, lags[1].partition], [0, 1]);
        let of_consumer = ConsumerLag::of(&lags);
        assert_eq!((of_consumer.messages, of_consumer.partitions), (7, 2));
        assert!(of_consumer.age.as_secs() >= 50);
    }
}
