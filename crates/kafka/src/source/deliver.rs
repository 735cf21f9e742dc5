//! Takes records from the queue of a partition to its stream, as long as the stream has room.
//!
//! Backpressure means that a queue is left alone. Each partition has its own queue in librdkafka, bounded by
//! `queued.max.messages.kbytes`; when nobody takes from it, no more is fetched into it, while rebalances and the other
//! partitions go on. Pausing and resuming would throw away what was fetched ahead each time and fetch it again, and with one
//! queue for all a full partition at its head would hold up all others: both were measured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::message::{Headers, Record};
use oncebox_core::source::LogId;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers as _, Message as _};
use tracing::warn;

use super::partition::{Doubt, Partition, Phase};

/// The most records taken from one partition before it is the next one's turn.
const RECORDS_PER_TURN: usize = 500;

/// What stands for a header that cannot be read.
const UNREADABLE: &str = "\u{FFFD}";

/// How a partition's turn ended. The larger, the sooner it should be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// There is nothing to take; its bell will say when there is.
    Empty,
    /// The stream has no room; nobody will say when it has some.
    Full,
    /// Records were taken and there may be more.
    More,
}

impl Partition {
    /// Takes a turn's worth of records.
    pub(super) fn deliver(&mut self) -> Turn {
        match self.phase {
            Phase::Waiting { .. } | Phase::Stopped => return Turn::Empty,
            Phase::Flowing if self.full && !self.stream.has_room() => return Turn::Full,
            // Others may have taken the memory since.
            Phase::Flowing if self.stream.is_full() => {
                self.full = true;
                return Turn::Full;
            }
            Phase::Flowing => self.full = false,
        }
        let Some(queue) = &self.queue else { return Turn::Empty };
        let log = self.start.as_ref().and_then(|start| start.log.as_ref());
        for _ in 0..RECORDS_PER_TURN {
            match queue.poll(Duration::ZERO) {
                None => return Turn::Empty,
                Some(Ok(message)) => {
                    self.has_read = true;
                    // A stream that is closing or stopped takes nothing: what is dropped here will be delivered again. Nor
                    // does it take what lies below its start.
                    if self.stream.push(to_record(&message, &self.topic, log)) {
                        self.last_pushed = Some(message.offset());
                    }
                    if self.stream.is_full() {
                        self.full = true;
                        return Turn::Full;
                    }
                }
                Some(Err(error)) => {
                    self.doubt = doubt_after(&error).or(self.doubt);
                }
            }
        }
        Turn::More
    }
}

/// Other errors are reported by the callback, in more detail, and librdkafka goes on by itself.
fn doubt_after(error: &KafkaError) -> Option<Doubt> {
    let truncated = match error.rdkafka_error_code()? {
        RDKafkaErrorCode::LogTruncation => true,
        RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => false,
        _ => return None,
    };
    Some(Doubt { truncated })
}

/// Copies everything, so that the message can go back to librdkafka at once and its memory is counted by our own queue.
fn to_record(message: &BorrowedMessage<'_>, topic: &Arc<str>, log: Option<&LogId>) -> Record {
    Record {
        key: message.key().map(Bytes::copy_from_slice),
        payload: message.payload().map(Bytes::copy_from_slice),
        headers: message.headers().map(|headers| copy_headers(headers, message)).unwrap_or_default(),
        timestamp_ms: message.timestamp().to_millis(),
        log: log.cloned(),
        ..Record::at(Arc::clone(topic), message.partition(), message.offset())
    }
}

fn copy_headers(headers: &BorrowedHeaders, message: &BorrowedMessage<'_>) -> Headers {
    (0..headers.count()).map(|at| copy_header(headers, at, message)).collect()
}

/// The binding panics when a header's name is not UTF-8, which Kafka's protocol forbids and no broker checks. Such a message
/// must not end the thread that reads all the others: the header becomes one that no selector can match.
fn copy_header(
    headers: &BorrowedHeaders,
    at: usize,
    message: &BorrowedMessage<'_>,
) -> (String, Option<Bytes>) {
    let read = catch_unwind(AssertUnwindSafe(|| {
        let header = headers.get(at);
        (header.key.to_owned(), header.value.map(Bytes::copy_from_slice))
    }));
    read.unwrap_or_else(|_| {
        warn!(
            topic = message.topic(),
            partition = message.partition(),
            offset = message.offset(),
            header = at,
            "a header's name is not UTF-8: the header cannot be read"
        );
        (UNREADABLE.to_owned(), None)
    })
}
