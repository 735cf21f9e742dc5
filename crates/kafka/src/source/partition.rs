//! One assigned partition and the table of all of them: what the reader knows about each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::source::Stream;
use oncebox_core::source::{LogId, Start};
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::callbacks::Callbacks;

/// After this long without a record there is none to recognise the log by: it has been compacted away.
const RECOGNITION_TIMEOUT: Duration = Duration::from_secs(60);

/// Where a partition stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// Not fetched. The engine does not own the position yet, or the broker has not told yet where its log begins and ends.
    Waiting { next_try: Instant, failures: u32 },
    /// Records are fetched and handed on.
    Flowing,
    /// Not read any more; an operator must act, unless it is fenced.
    Stopped,
}

/// A partition whose next messages may be gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    /// When to look.
    pub(super) at: Instant,
    /// The broker says that it lost messages which it had handed out.
    pub(super) truncated: bool,
}

pub(super) struct Partition {
    pub(super) topic: Arc<str>,
    pub(super) number: i32,
    pub(super) stream: Stream,
    pub(super) phase: Phase,
    /// What librdkafka has fetched of it.
    pub(super) queue: Option<PartitionQueue<Callbacks>>,
    /// The stream has no room for the moment.
    pub(super) full: bool,
    /// Where reading began.
    pub(super) start: Option<Start>,
    pub(super) last_pushed: Option<i64>,
    /// One past the newest offset, as last heard.
    pub(super) high: Option<i64>,
    /// What was sent to the broker as committed.
    pub(super) committed: Option<i64>,
    pub(super) doubt: Option<Doubt>,
    /// Since when it is [`Phase::Stopped`] because the engine stopped it.
    pub(super) stopped_at: Option<Instant>,
    /// Whether a record came since the last report.
    pub(super) heard: bool,
    /// Whether a record came at all.
    pub(super) has_read: bool,
    /// Since when it is [`Phase::Flowing`].
    pub(super) flowing_since: Option<Instant>,
    /// How many statistics in a row said that librdkafka does not fetch it though it should.
    pub(super) stalled: u32,
}

impl Partition {
    pub(super) fn new(stream: Stream, topic: Arc<str>) -> Self {
        Self {
            number: stream.partition(),
            topic,
            stream,
            phase: Phase::Waiting { next_try: Instant::now(), failures: 0 },
            queue: None,
            full: false,
            start: None,
            last_pushed: None,
            high: None,
            committed: None,
            doubt: None,
            stopped_at: None,
            heard: false,
            has_read: false,
            flowing_since: None,
            stalled: 0,
        }
    }

    /// How long the engine has stood still.
    pub(super) fn stopped_for(&self) -> Duration {
        self.stopped_at.map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// Whether the engine owns the position and nothing but the broker is waited for.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        matches!(self.phase, Phase::Waiting { next_try, .. } if next_try <= now)
            && self.stream.acquired().is_some()
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
    pub(super) fn skip_to(&self, position: Option<i64>) {
        let next = self.next_offset();
        if self.phase == Phase::Flowing
            && self.stream.stopped().is_none()
            && self.all_settled()
            && let Some(position) = position.filter(|at| Some(*at) > next)
        {
            self.stream.skip_to(position);
        }
    }

    /// How many messages are not applied yet. `position` is where librdkafka stands: past the last record there may be
    /// transaction markers, which have offsets but are not messages.
    pub(super) fn lag(&self, position: Option<i64>) -> i64 {
        let start = self.start.as_ref().map(|start| start.offset);
        let Some(done) = self.stream.settled().or(start) else { return 0 };
        let done = if self.all_settled() { done.max(position.unwrap_or(done)) } else { done };
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

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> Vec<Partition> {
        std::mem::take(&mut self.by_topic).into_values().flat_map(BTreeMap::into_values).collect()
    }
}
