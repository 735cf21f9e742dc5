//! One partition, as its source sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::log::{LogId, LogMark};
use super::start::{Start, StartError};
use crate::inbox::Partition;
use crate::message::Record;
use crate::store::PositionKey;

/// The most offsets that may be received and not yet passed. With several lanes one slow message would otherwise let the
/// others run ahead without end.
const MAX_OPEN_OFFSETS: usize = 50_000;

/// A partition's position, once the engine owns it. See [`Ownership`](crate::store::Ownership).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acquired {
    /// The next offset to apply, if the partition was ever started.
    pub next_offset: Option<i64>,
    /// The log it belongs to, if that is known.
    pub log: Option<LogId>,
    /// The last settled record that was written down.
    pub mark: Option<LogMark>,
    /// Where an operator has moved it to.
    pub floor: Option<i64>,
}

/// One partition, as its source sees it. Cheap to clone.
#[derive(Clone)]
pub struct Stream(pub(crate) Arc<Partition>);

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.key.topic, self.0.key.partition)
    }
}

impl Stream {
    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.0.key.topic
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.0.key.partition
    }

    /// What the position belongs to.
    #[must_use]
    pub fn key(&self) -> &PositionKey {
        &self.0.key
    }

    /// The position, as soon as the inbox owns it. The source then decides where to begin (see
    /// [`start_at`](crate::source::start_at)), moves there and calls [`Stream::start`].
    #[must_use]
    pub fn acquired(&self) -> Option<Acquired> {
        self.0.owner.get().map(|owner| Acquired {
            next_offset: owner.next_offset,
            log: owner.log.clone(),
            mark: owner.mark,
            floor: owner.floor,
        })
    }

    /// Reading begins there. The source pushes what it reads from `read_from` on.
    pub fn start(&self, start: Start) {
        if self.0.start.set(start).is_ok() {
            self.0.start_known.notify_one();
        }
    }

    /// The log ended there, one past its newest offset, when it was asked for at this time or later. To be told now and then
    /// while the partition is read; retention goes by it.
    pub fn log_ends_at(&self, end: i64, asked: Instant) {
        let partition = &self.0;
        partition.progress.log_ends_at(end, asked);
        if partition.progress.caught_up_to_tell(partition.start_offset()).is_some() {
            partition.want_note();
        }
    }

    /// So many messages are not settled yet, those that were handed over included. To be told now and then, for the metrics.
    pub fn lag_is(&self, messages: u64) {
        self.0.lag.is(messages);
    }

    /// The queue held nothing that was not handed over before when it was asked at this time. To be told now and then, of a
    /// queue; retention goes by it. The acknowledgements of everything that was answered by then went ahead of the question,
    /// on the same channel: so the answer says that they have arrived, too.
    pub fn nothing_waits(&self, asked: Instant) {
        if let Some(deliveries) = &self.0.deliveries {
            deliveries.nothing_waits(asked);
        }
    }

    /// Hands over a record; never waits. Returns false, and drops it, if the stream is closing or stopped, if the offset
    /// was received before, or if it lies below the start.
    pub fn push(&self, record: Record) -> bool {
        let partition = &self.0;
        if partition.queues.has_ended() {
            return false;
        }
        let taken = match &partition.deliveries {
            // Whoever closes the stream gives back what it finds: either it finds this one, or we see that it closes.
            Some(deliveries) => {
                deliveries.receive(record.offset)
                    && (!partition.queues.has_ended() || !deliveries.withdraw(record.offset))
            }
            None => !self.lies_below_the_start(&record) && partition.progress.receive(record.offset),
        };
        if taken {
            partition.lag.received(record.offset, record.timestamp_ms);
            partition.queues.push(record);
        }
        taken
    }

    /// Looks at the records that are read only to recognise the log.
    fn lies_below_the_start(&self, record: &Record) -> bool {
        let Some(start) = self.0.start.get() else { return false };
        if let Some(mark) = start.mark.filter(|mark| mark.offset == record.offset)
            && LogMark::of(record) != mark
        {
            let next = self.0.owner.get().and_then(|owner| owner.next_offset).unwrap_or(start.offset);
            self.stop(StartError::Rewritten { offset: mark.offset, next }.explain(&self.0.key));
            return true;
        }
        record.offset < start.offset
    }

    /// Whether the source should pause this partition.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queued_above(1)
    }

    /// Whether the source may resume a paused partition. Lower than full, so that it does not flap.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.queued_above(2)
    }

    fn queued_above(&self, fraction: usize) -> bool {
        let open = match &self.0.deliveries {
            Some(deliveries) => deliveries.open(),
            None => self.0.progress.open(),
        };
        self.0.queues.hold(fraction) || open >= MAX_OPEN_OFFSETS / fraction
    }

    /// Everything below this offset is settled and committed in the database: what may be acknowledged. `None` before the
    /// first settled message, and for a queue.
    #[must_use]
    pub fn settled(&self) -> Option<i64> {
        self.0.progress.written()
    }

    /// Everything below this offset is settled, although the last message was before it: what lies between are markers of
    /// transactions or compacted messages. The position follows in the background, so that retention may remove them without
    /// leaving what looks like a gap.
    pub fn skip_to(&self, offset: i64) {
        if self.0.progress.skip_to(offset) {
            self.0.want_note();
        }
    }

    /// Why the partition stands still, if it does. It stays so until it is opened anew.
    #[must_use]
    pub fn stopped(&self) -> Option<&str> {
        self.0.stopped()
    }

    /// Whether it stands still because another process has acquired the position. If the source still has the partition
    /// after a while, it should close this stream and open a new one: an acquisition that was late may have come from a
    /// process that no longer has it.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.0.is_fenced()
    }

    /// Stops the partition for a reason that an operator must see.
    pub fn stop(&self, reason: impl Into<String>) {
        self.0.stop(reason.into());
    }

    /// No new work is begun; the transaction in flight ends as it may. What still waits is dropped, since it will be
    /// delivered again; of a queue it is given back.
    pub fn close(&self) {
        self.0.close();
    }

    /// Waits until the lanes have ended after [`Stream::close`]. False if they have not within `budget`. Blocks: for the
    /// source's own thread.
    #[must_use]
    pub fn wait_closed(&self, budget: Duration) -> bool {
        self.0.wait_closed(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::{BatchBounds, Memory, Settings};
    use crate::monitor::Monitor;
    use crate::names::ConsumerName;
    use crate::source::OpenStream;

    fn stream(batch: BatchBounds) -> Stream {
        stream_within(batch, Memory::default())
    }

    fn stream_within(batch: BatchBounds, memory: Memory) -> Stream {
        let settings = Settings { batch, memory, ..Settings::default() };
        let open = OpenStream::new("t", 0);
        let consumer = ConsumerName::new("stock").unwrap();
        Stream(Arc::new(Partition::new(consumer, open, &settings, &Monitor::default())))
    }

    #[test]
    fn a_full_stream_asks_for_a_pause_and_has_room_again_at_half() {
        let stream = stream(BatchBounds { messages: 2, bytes: 1_000 });
        for offset in 0..4 {
            assert!(stream.push(Record::at("t", 0, offset)));
        }
        assert!(stream.is_full() && !stream.has_room());
        assert!(!stream.push(Record::at("t", 0, 3)), "the same offset again is ignored");
    }

    #[tokio::test]
    async fn a_full_stream_leaves_memory_to_others_and_a_stopped_one_all_of_it() {
        let memory = Memory::new(4 * 40_000);
        let (long, late) = (
            stream_within(BatchBounds::default(), memory.clone()),
            stream_within(BatchBounds::default(), memory.clone()),
        );
        let large = |offset| {
            let mut record = Record::at("t", 0, offset);
            record.payload = Some(vec![0; 10_000].into());
            record
        };
        let mut next = 0;
        while !long.is_full() {
            assert!(long.push(large(next)));
            next += 1;
        }
        assert_eq!(next, 6, "a half of three quarters");
        assert!(late.push(large(0)) && late.push(large(1)) && !late.is_full());
        assert!(!long.has_room());
        let taken = long.0.queues.next(0, BatchBounds::default()).await.expect("all of them");
        assert!(long.is_full(), "what is in a transaction takes memory too");
        drop(taken);
        assert!(long.has_room());
        long.push(large(next));
        long.stop("an operator must look");
        late.stop("an operator must look");
        assert_eq!(memory.held(), 0);
    }

    #[tokio::test]
    async fn a_closing_stream_takes_and_gives_nothing() {
        let stream = stream(BatchBounds::default());
        assert!(stream.push(Record::at("t", 0, 0)));
        stream.close();
        assert!(!stream.push(Record::at("t", 0, 1)));
        assert!(stream.0.queues.next(0, BatchBounds::default()).await.is_none());
        assert_eq!(stream.settled(), None);
    }
}
