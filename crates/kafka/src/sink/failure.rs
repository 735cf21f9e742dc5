//! Whose fault a failed delivery is, in words that help.

use std::time::Duration;

use oncebox_core::outbox::{Delivery, OutgoingEvent};
use rdkafka::error::RDKafkaErrorCode;

use crate::error::Error;

/// Whether an event that fails with this code when it is sent alone would always fail.
pub(super) fn is_own(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{
        InvalidMessage, InvalidMessageSize, InvalidRecord, InvalidTimestamp, MessageSizeTooLarge,
    };
    [InvalidMessage, InvalidMessageSize, InvalidRecord, InvalidTimestamp, MessageSizeTooLarge].contains(&code)
}

/// Gives the event up.
pub(super) fn of_event(event: &OutgoingEvent, code: RDKafkaErrorCode) -> Delivery {
    let (id, topic) = (event.id(), event.topic());
    let error = match code {
        RDKafkaErrorCode::MessageSizeTooLarge => format!(
            "event {id} has {} bytes, more than topic {topic} takes: raise max.message.bytes of the topic (and the \
             property message.max.bytes if it is set), then retry the event",
            byte_len(event)
        ),
        RDKafkaErrorCode::InvalidTimestamp => format!(
            "topic {topic} refuses the time of event {id}, {} ms since 1970: see message.timestamp.before.max.ms and \
             message.timestamp.after.max.ms of the topic",
            event.created_at_ms()
        ),
        code => format!(
            "topic {topic} refuses event {id} ({code}): a compacted topic takes no event without a key, and a schema \
             may be enforced"
        ),
    };
    Delivery::Reject { error }
}

fn byte_len(event: &OutgoingEvent) -> usize {
    let mut len = event.key().map_or(0, <[u8]>::len) + event.payload().map_or(0, bytes::Bytes::len);
    event.visit_headers(|name, value| len += name.len() + value.map_or(0, <[u8]>::len));
    len
}

/// What keeps a batch from being published. `stopped_by`: what librdkafka said when it stopped the producer.
pub(super) fn of_batch(
    topic: &str,
    missing: usize,
    events: usize,
    code: RDKafkaErrorCode,
    stopped_by: Option<String>,
) -> Error {
    use RDKafkaErrorCode::{
        Fatal, PurgeInflight, PurgeQueue, TopicAuthorizationFailed, UnknownPartition, UnknownTopic,
        UnknownTopicOrPartition,
    };
    let reason = match code {
        // Events name no partition, so it is the topic that is gone.
        UnknownPartition | UnknownTopic | UnknownTopicOrPartition => {
            return Error::UnknownTopic(topic.to_owned());
        }
        TopicAuthorizationFailed => "we may not write to this topic: grant us WRITE on it".to_owned(),
        Fatal | PurgeInflight | PurgeQueue => {
            format!("the producer was stopped by {}", stopped_by.unwrap_or_else(|| code.to_string()))
        }
        code => code.to_string(),
    };
    Error::NotPublished { topic: topic.to_owned(), missing, events, reason }
}

/// Nothing was confirmed for `stall`, and librdkafka would go on trying without a word.
pub(super) fn of_stalled(topic: &str, missing: usize, events: usize, stall: Duration) -> Error {
    let reason = format!(
        "no confirmation for {} s, perhaps a partition has no leader or too few replicas in sync",
        stall.as_secs_f32()
    );
    Error::NotPublished { topic: topic.to_owned(), missing, events, reason }
}
