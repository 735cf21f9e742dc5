//! From librdkafka's borrowed message to a record of our own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use oncebox_core::message::{Headers, Record};
use oncebox_core::source::LogId;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers as _, Message as _};
use tracing::warn;

/// What stands for a header that cannot be read.
const UNREADABLE: &str = "\u{FFFD}";

/// Copies everything, so that the message can go back to librdkafka at once and its memory is counted by our own queue.
pub(super) fn to_record(message: &BorrowedMessage<'_>, topic: &Arc<str>, log: Option<&LogId>) -> Record {
    Record {
        topic: Arc::clone(topic),
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(Bytes::copy_from_slice),
        payload: message.payload().map(Bytes::copy_from_slice),
        headers: message.headers().map(|headers| copy_headers(headers, message)).unwrap_or_default(),
        timestamp_ms: message.timestamp().to_millis(),
        log: log.cloned(),
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
