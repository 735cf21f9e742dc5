//! The ids of topics, and who leads their partitions. A topic that was deleted and created anew has the same name and another id. The
//! answer names the leaders too, of many topics at once, which the binding asks for one topic at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CStr, CString, c_char};
use std::time::{Duration, Instant};

use rdkafka::bindings as ffi;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::metadata::MetadataBroker;

use crate::owned::Owned;

/// For each topic its id, or why there is none. `None` stands for a broker that has no topic ids (before Kafka 2.8).
pub type TopicIds = HashMap<String, KafkaResult<Option<String>>>;

/// What a broker says about a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its id, as Kafka's own tools write it. `None` from a broker that has no topic ids (before Kafka 2.8).
    pub id: Option<String>,
    /// Its partitions, each with the broker that leads it, if one does.
    pub leaders: BTreeMap<i32, Option<i32>>,
}

/// For each topic what it is, or why that is not known.
pub type Topics = HashMap<String, KafkaResult<Topic>>;

/// librdkafka takes no longer time than this.
const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The ids of these topics. Waits for the answer, at most for `timeout`.
pub fn topic_ids<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    timeout: Duration,
) -> KafkaResult<TopicIds> {
    let described = describe_topics(client, topics, timeout)?;
    Ok(described.into_iter().map(|(name, topic)| (name, topic.map(|topic| topic.id))).collect())
}

/// The ids of these topics and the leaders of their partitions. Waits for the answer, at most for `timeout`.
pub fn describe_topics<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    timeout: Duration,
) -> KafkaResult<Topics> {
    let names: Result<BTreeSet<CString>, _> = topics.iter().map(|topic| CString::new(*topic)).collect();
    let names = names.map_err(|_| refused(RDKafkaErrorCode::InvalidArgument))?;
    let Some(first) = topics.first() else { return Ok(Topics::new()) };
    let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
    let broker = broker_that_answers(client, first, millis_until(deadline))?;
    let queue = ask(client, &names, broker, millis_until(deadline))?;
    // SAFETY: the queue is valid until `queue` is dropped. What is returned is null or belongs to us.
    let event = unsafe { ffi::rd_kafka_queue_poll(queue.as_ptr(), millis_until(deadline)) };
    // SAFETY: the event is null or ours alone, and this is how librdkafka wants it destroyed.
    let event = unsafe { Owned::new(event, ffi::rd_kafka_event_destroy) };
    answer(&event.ok_or_else(|| refused(RDKafkaErrorCode::OperationTimedOut))?)
}

/// At least one, since nothing below is a time to wait.
fn millis_until(deadline: Instant) -> i32 {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    i32::try_from(left).unwrap_or(i32::MAX).max(1)
}

/// Left to itself librdkafka asks the controller, which may be away, while any broker knows. (The controller that its mock of
/// a cluster names does not even exist.)
fn broker_that_answers<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    timeout_ms: i32,
) -> KafkaResult<i32> {
    let timeout = Duration::from_millis(u64::from(timeout_ms.unsigned_abs()));
    let metadata = client.fetch_metadata(Some(topic), timeout)?;
    let known = metadata.brokers().iter().map(MetadataBroker::id);
    // A broker that is known only by the address that was configured answers as -1.
    let answered = Some(metadata.orig_broker_id()).filter(|id| *id >= 0);
    answered.or_else(|| known.min()).ok_or_else(|| refused(RDKafkaErrorCode::AllBrokersDown))
}

fn refused(code: RDKafkaErrorCode) -> KafkaError {
    KafkaError::MetadataFetch(code)
}

fn succeeded(code: ffi::rd_kafka_resp_err_t) -> KafkaResult<()> {
    match code {
        ffi::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        other => Err(refused(other.into())),
    }
}

/// Sends the request. The answer comes to the queue; if that is dropped before, librdkafka drops the answer.
fn ask<C: ClientContext>(
    client: &Client<C>,
    names: &BTreeSet<CString>,
    broker: i32,
    timeout_ms: i32,
) -> KafkaResult<Owned<ffi::rd_kafka_queue_t>> {
    let no_memory = || refused(RDKafkaErrorCode::Fail);
    let rk = client.native_ptr();
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();

    // SAFETY: `pointers` holds that many C strings, which live in `names` until the end. librdkafka copies them.
    let topics =
        unsafe { ffi::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len()) };
    // SAFETY: the collection is null or ours alone, and this is how librdkafka wants it destroyed.
    let topics =
        unsafe { Owned::new(topics, ffi::rd_kafka_TopicCollection_destroy) }.ok_or_else(no_memory)?;

    let operation = ffi::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    // SAFETY: the client is borrowed, so `rk` is valid all through this function.
    let options = unsafe { ffi::rd_kafka_AdminOptions_new(rk, operation) };
    // SAFETY: the options are null or ours alone, and this is how librdkafka wants them destroyed.
    let options = unsafe { Owned::new(options, ffi::rd_kafka_AdminOptions_destroy) }.ok_or_else(no_memory)?;
    let mut reason: [c_char; 256] = [0; 256];
    // SAFETY: the options are valid, and no more than the given size is written to `reason`.
    let set = unsafe {
        ffi::rd_kafka_AdminOptions_set_request_timeout(
            options.as_ptr(),
            timeout_ms,
            reason.as_mut_ptr(),
            reason.len(),
        )
    };
    succeeded(set)?;
    // SAFETY: as above.
    let set = unsafe {
        ffi::rd_kafka_AdminOptions_set_broker(options.as_ptr(), broker, reason.as_mut_ptr(), reason.len())
    };
    succeeded(set)?;

    // SAFETY: `rk` is valid.
    let queue = unsafe { ffi::rd_kafka_queue_new(rk) };
    // SAFETY: the queue is null or ours alone, and this is how librdkafka wants it destroyed.
    let queue = unsafe { Owned::new(queue, ffi::rd_kafka_queue_destroy) }.ok_or_else(no_memory)?;
    // SAFETY: all four are valid. librdkafka copies the topics and the options, and counts its own reference to the queue.
    unsafe { ffi::rd_kafka_DescribeTopics(rk, topics.as_ptr(), options.as_ptr(), queue.as_ptr()) };
    Ok(queue)
}

fn answer(event: &Owned<ffi::rd_kafka_event_t>) -> KafkaResult<Topics> {
    // SAFETY: the event is valid.
    let code = unsafe { ffi::rd_kafka_event_error(event.as_ptr()) };
    succeeded(code)?;
    // SAFETY: the event is valid. The result is a view of it, or null if it is another event.
    let result = unsafe { ffi::rd_kafka_event_DescribeTopics_result(event.as_ptr()) };
    if result.is_null() {
        return Err(refused(RDKafkaErrorCode::BadMessage));
    }
    let mut count = 0_usize;
    // SAFETY: the result is valid as long as the event is; `count` is written to.
    let first = unsafe { ffi::rd_kafka_DescribeTopics_result_topics(result, &raw mut count) };
    if first.is_null() {
        return Ok(Topics::new());
    }
    // SAFETY: librdkafka says that there are `count` pointers, which live as long as the event.
    let descriptions = unsafe { std::slice::from_raw_parts(first, count) };
    // A topic that the broker has left out of its answer leaves a null behind.
    let there = descriptions.iter().copied().filter(|topic| !topic.is_null());
    // SAFETY: the descriptions are not null and live as long as the event, which is borrowed here.
    Ok(there.map(|topic| unsafe { described(topic) }).collect())
}

/// The name of a described topic and what it is.
///
/// # Safety
/// `topic` must be valid.
unsafe fn described(topic: *const ffi::rd_kafka_TopicDescription_t) -> (String, KafkaResult<Topic>) {
    // SAFETY: the description is valid, as the caller says.
    let name = unsafe { ffi::rd_kafka_TopicDescription_name(topic) };
    // SAFETY: the name is a part of the description.
    let name = unsafe { text(name) };
    // SAFETY: the description is valid. The error belongs to it and may be null.
    let error = unsafe { ffi::rd_kafka_TopicDescription_error(topic) };
    // SAFETY: null is allowed here and means that there is no error.
    let code = unsafe { ffi::rd_kafka_error_code(error) };
    if let Err(refused) = succeeded(code) {
        return (name, Err(refused));
    }
    // SAFETY: the description is valid. The id is a part of it.
    let id = unsafe { ffi::rd_kafka_TopicDescription_topic_id(topic) };
    // SAFETY: as above.
    let high = unsafe { ffi::rd_kafka_Uuid_most_significant_bits(id) };
    // SAFETY: as above.
    let low = unsafe { ffi::rd_kafka_Uuid_least_significant_bits(id) };
    // SAFETY: the description is valid, as the caller says.
    let leaders = unsafe { leaders(topic) };
    if (high, low) == (0, 0) {
        return (name, Ok(Topic { id: None, leaders }));
    }
    // SAFETY: the id is valid, and nobody else has it: librdkafka keeps the text inside of it.
    let id = unsafe { ffi::rd_kafka_Uuid_base64str(id) };
    // SAFETY: it is a part of the id, or null.
    let id = unsafe { text(id) };
    let id = Some(as_kafka_writes(&id)).filter(|id| !id.is_empty());
    (name, Ok(Topic { id, leaders }))
}

/// The partitions of a described topic, each with its leader.
///
/// # Safety
/// `topic` must be valid.
unsafe fn leaders(topic: *const ffi::rd_kafka_TopicDescription_t) -> BTreeMap<i32, Option<i32>> {
    let mut count = 0_usize;
    // SAFETY: the description is valid, as the caller says; `count` is written to.
    let first = unsafe { ffi::rd_kafka_TopicDescription_partitions(topic, &raw mut count) };
    if first.is_null() {
        return BTreeMap::new();
    }
    // SAFETY: librdkafka says that there are `count` pointers, which live as long as the description.
    let partitions = unsafe { std::slice::from_raw_parts(first, count) };
    let there = partitions.iter().copied().filter(|partition| !partition.is_null());
    there
        .map(|partition| {
            // SAFETY: it is not null and a part of the description.
            let number = unsafe { ffi::rd_kafka_TopicPartitionInfo_partition(partition) };
            // SAFETY: as above. The node is a part of it, or null if nobody leads.
            let leader = unsafe { ffi::rd_kafka_TopicPartitionInfo_leader(partition) };
            let id = (!leader.is_null()).then(|| {
                // SAFETY: it is not null and a part of the description.
                unsafe { ffi::rd_kafka_Node_id(leader) }
            });
            (number, id.filter(|id| *id >= 0))
        })
        .collect()
}

/// librdkafka writes ids in the common alphabet of base64, Kafka in the one for URLs.
fn as_kafka_writes(id: &str) -> String {
    id.replace('/', "_").replace('+', "-")
}

/// A copy of a C string; empty for null.
///
/// # Safety
/// `string` must be null or a valid C string.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, so it is a valid C string, as the caller says.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_kafka_writes_them() {
        assert_eq!(as_kafka_writes("3LooOij3RQaY+S60G/PL3g"), "3LooOij3RQaY-S60G_PL3g");
    }
}
