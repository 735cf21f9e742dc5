//! One assigned partition and the table of all of them: what the reader knows about each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::source::Stream;
use oncebox_core::source::{LogId, Start};
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::ask::Asked;
use super::bell::Bell;
use super::callbacks::Callbacks;
use super::trouble::Lasting;
use crate::ends::Place;

/// After this long without a record there is none to recognise the log by: it has been compacted away.
const RECOGNITION_TIMEOUT: Duration = Duration::from_secs(60);

/// Where a partition stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// Not fetched. The engine does not own the position yet, or the broker has not told yet where its log begins and ends,
    /// although it was asked so many times.
    Waiting { failures: u32 },
    /// Records are fetched and handed on.
    Flowing,
    /// Not read any more; an operator must act, unless it is fenced.
    Stopped,
}

/// A partition whose next messages may be gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    /// The broker says that it lost messages which it had handed out.
    pub(super) truncated: bool,
}

pub(super) struct Partition {
    pub(super) topic: Arc<str>,
    pub(super) number: i32,
    /// Tells this assignment of the partition from others.
    pub(super) serial: u64,
    pub(super) stream: Stream,
    pub(super) bell: Arc<Bell>,
    pub(super) phase: Phase,
    /// A question about where to begin, or about a doubt, is under way.
    pub(super) asked: bool,
    /// Why it cannot begin yet.
    pub(super) delayed_by: Option<String>,
    /// What librdkafka has fetched of it.
    pub(super) queue: Option<PartitionQueue<Callbacks>>,
    /// The stream has no room for the moment.
    pub(super) full: bool,
    /// Where reading began.
    pub(super) start: Option<Start>,
    pub(super) last_pushed: Option<i64>,
    /// One past the newest offset, as last heard.
    pub(super) high: Option<i64>,
    /// Where librdkafka stands, as last heard: past the last record there may be markers of transactions, which have offsets but
    /// are not messages.
    pub(super) position: Option<i64>,
    /// What was sent to the broker as committed.
    pub(super) committed: Option<i64>,
    pub(super) doubt: Option<Doubt>,
    /// Since when it is [`Phase::Stopped`] because the engine stopped it.
    pub(super) stopped_at: Option<Instant>,
    /// Whether a record came at all.
    pub(super) has_read: bool,
    /// Since when it is [`Phase::Flowing`].
    pub(super) flowing_since: Option<Instant>,
    /// librdkafka does not fetch it though it could.
    pub(super) stalled: Lasting,
    /// It was fetched anew because of that.
    pub(super) fetched_anew: bool,
    /// It has no leader that can be reached.
    pub(super) leaderless: Lasting,
}

impl Partition {
    pub(super) fn new(stream: Stream, topic: Arc<str>, serial: u64, bell: Arc<Bell>) -> Self {
        Self {
            number: stream.partition(),
            topic,
            serial,
            stream,
            bell,
            phase: Phase::Waiting { failures: 0 },
            asked: false,
            delayed_by: None,
            queue: None,
            full: false,
            start: None,
            last_pushed: None,
            high: None,
            position: None,
            committed: None,
            doubt: None,
            stopped_at: None,
            has_read: false,
            flowing_since: None,
            stalled: Lasting::default(),
            fetched_anew: false,
            leaderless: Lasting::default(),
        }
    }

    /// Sees that the engine stands still.
    pub(super) fn notice_stop(&mut self) {
        if self.phase != Phase::Stopped && self.stream.stopped().is_some() {
            self.phase = Phase::Stopped;
            self.stopped_at = Some(Instant::now());
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    pub(super) fn key(&self) -> Place {
        (Arc::clone(&self.topic), self.number)
    }

    /// How it is asked about.
    pub(super) fn question(&self) -> Asked {
        Asked { place: self.key(), serial: self.serial }
    }

    /// How long the engine has stood still.
    pub(super) fn stopped_for(&self) -> Duration {
        self.stopped_at.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// Whether the broker was not asked in vain yet. After that it is asked when it is time.
    pub(super) fn is_new(&self) -> bool {
        self.phase == (Phase::Waiting { failures: 0 })
    }

    /// Whether the engine owns the position and the broker is to be asked.
    pub(super) fn is_ready(&self) -> bool {
        self.is_waiting() && !self.asked && self.stream.acquired().is_some()
    }

    /// The next offset to apply, as far as records tell.
    pub(super) fn next_offset(&self) -> Option<i64> {
        self.last_pushed.map(|last| last + 1).or(self.start.as_ref().map(|start| start.offset))
    }

    /// The next offset to come from the broker. Before the first message is taken that may be one which was applied long ago,
    /// and by which the log is recognised.
    pub(super) fn fetch_from(&self) -> Option<i64> {
        self.last_pushed.map(|last| last + 1).or(self.start.as_ref().map(|start| start.read_from))
    }

    /// Reads no record below this offset. Those are gone, which is not a gap: they would only have shown that the log is the
    /// same.
    pub(super) fn raise_read_from(&mut self, low: i64) {
        if let Some(start) = &mut self.start {
            start.read_from = start.read_from.max(low);
        }
    }

    /// The log it reads, if the broker tells.
    pub(super) fn log(&self) -> Option<&LogId> {
        self.start.as_ref()?.log.as_ref()
    }

    /// Passes on where the log ends. A log that is not recognised yet may be another one, whose end says nothing.
    pub(super) fn pass_on_log_end(&self, end: i64, asked: tokio::time::Instant) {
        let marked = self.start.as_ref().is_some_and(|start| start.mark.is_some());
        let recognised = self.has_read
            || !marked
            || self.flowing_since.is_some_and(|since| since.elapsed() > RECOGNITION_TIMEOUT);
        if self.phase == Phase::Flowing && self.stream.stopped().is_none() && recognised {
            self.stream.log_ends_at(end, asked);
        }
    }

    /// Whether the engine has settled everything it was given.
    fn all_settled(&self) -> bool {
        self.last_pushed.is_none_or(|last| self.stream.settled().is_some_and(|next| next > last))
    }

    /// Lets the position in the database follow librdkafka's past markers of transactions, once all messages are settled.
    /// A stream that has stopped takes no messages, and librdkafka's position is past those that it did not take.
    pub(super) fn skip_to(&self, position: i64) {
        if self.phase == Phase::Flowing
            && self.stream.stopped().is_none()
            && self.all_settled()
            && Some(position) > self.next_offset()
        {
            self.stream.skip_to(position);
        }
    }

    /// How many messages are not applied yet.
    pub(super) fn lag(&self) -> i64 {
        let start = self.start.as_ref().map(|start| start.offset);
        let Some(done) = self.stream.settled().or(start) else { return 0 };
        let done = if self.all_settled() { done.max(self.position.unwrap_or(done)) } else { done };
        self.high.map_or(0, |high| (high - done).max(0))
    }

    pub(super) fn place(&self) -> String {
        format!("{}/{}", self.topic, self.number)
    }

    /// This partition alone, as librdkafka wants it.
    pub(super) fn list(&self) -> KafkaResult<TopicPartitionList> {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&self.topic, self.number, Offset::Invalid)?;
        Ok(list)
    }
}

/// How many partitions are named where there may be thousands.
const NAMED: usize = 3;

/// The first few of these by name, and how many more there are.
pub(super) fn named<'a>(places: impl Iterator<Item = (&'a str, i32)>) -> String {
    let mut places: Vec<(&str, i32)> = places.collect();
    places.sort_unstable();
    let first: Vec<String> =
        places.iter().take(NAMED).map(|(topic, number)| format!("{topic}/{number}")).collect();
    match places.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// All assigned partitions, found by topic and number.
#[derive(Default)]
pub(super) struct Partitions {
    by_topic: HashMap<Arc<str>, BTreeMap<i32, Partition>>,
}

impl Partitions {
    pub(super) fn insert(&mut self, partition: Partition) -> Option<Partition> {
        let topic = self.by_topic.entry(Arc::clone(&partition.topic)).or_default();
        topic.insert(partition.number, partition)
    }

    pub(super) fn remove(&mut self, topic: &str, number: i32) -> Option<Partition> {
        self.by_topic.get_mut(topic)?.remove(&number)
    }

    pub(super) fn get(&self, topic: &str, number: i32) -> Option<&Partition> {
        self.by_topic.get(topic)?.get(&number)
    }

    pub(super) fn get_mut(&mut self, topic: &str, number: i32) -> Option<&mut Partition> {
        self.by_topic.get_mut(topic)?.get_mut(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.by_topic.values().flat_map(BTreeMap::values)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.by_topic.values_mut().flat_map(BTreeMap::values_mut)
    }

    /// The one that was asked about, if it is still the same.
    pub(super) fn asked(&mut self, asked: &Asked) -> Option<&mut Partition> {
        let (topic, number) = &asked.place;
        self.get_mut(topic, *number).filter(|partition| partition.serial == asked.serial)
    }

    pub(super) fn len(&self) -> usize {
        self.by_topic.values().map(BTreeMap::len).sum()
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> Vec<Partition> {
        std::mem::take(&mut self.by_topic).into_values().flat_map(BTreeMap::into_values).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn names_stay_short() {
        assert_eq!(named([("b", 2), ("a", 10), ("a", 9)].into_iter()), "a/9, a/10, b/2");
        assert_eq!(named((0..10_000).map(|number| ("t", number))), "t/0, t/1, t/2 and 9997 more");
        assert_eq!(named(std::iter::empty()), "");
    }
}
