//! Which log stands behind the name of a topic: `<cluster id>/<topic id>`, with an empty part for what a broker is too old
//! to tell (cluster ids came with Kafka 0.10, topic ids with 2.8).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use oncebox_core::source::LogId;
use oncebox_kafka_ffi::topic_ids;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};

/// The log of each topic, or why it is not known now. `None`: the broker cannot tell anything about it.
pub(crate) type LogIds = HashMap<String, KafkaResult<Option<LogId>>>;

/// Asks for the logs of these topics. No answer is an error, so that nobody takes it for "unknown".
pub(crate) fn log_ids<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    timeout: Duration,
) -> KafkaResult<LogIds> {
    let deadline = Instant::now() + timeout;
    let topics = topic_ids(client, topics, timeout)?;
    // It came with the answer to the question before, so it is there at once or never.
    let cluster = client.fetch_cluster_id(deadline.saturating_duration_since(Instant::now()));
    let log = |topic: Option<String>| log_id(cluster.as_deref(), topic.as_deref());
    Ok(topics.into_iter().map(|(topic, id)| (topic, id.map(log))).collect())
}

/// The log of one of them.
pub(crate) fn log_of(topic: &str, logs: &LogIds) -> KafkaResult<Option<LogId>> {
    let unknown = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);
    logs.get(topic).cloned().unwrap_or(Err(unknown))
}

fn log_id(cluster: Option<&str>, topic: Option<&str>) -> Option<LogId> {
    let known = cluster.is_some() || topic.is_some();
    // The id of a cluster is whatever its makers like; the slash is what separates the parts.
    let part = |id: Option<&str>| id.unwrap_or_default().replace('/', "_");
    known.then(|| LogId::new(format!("{}/{}", part(cluster), part(topic))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_empty() {
        assert_eq!(log_id(Some("c"), Some("t")), Some(LogId::new("c/t")));
        assert_eq!(log_id(Some("c"), None), Some(LogId::new("c/")));
        assert_eq!(log_id(None, Some("t")), Some(LogId::new("/t")));
        assert_eq!(log_id(None, None), None);
        assert_eq!(
            log_id(Some("a/b"), Some("t")),
            Some(LogId::new("a_b/t")),
            "two parts, whatever is in them"
        );
    }

    /// Not to be told is not the same as not to be known: whoever asks must try again.
    #[test]
    fn no_answer_is_an_error() {
        let failed = KafkaError::MetadataFetch(RDKafkaErrorCode::LeaderNotAvailable);
        let logs: LogIds = [("old".to_owned(), Ok(None)), ("failed".to_owned(), Err(failed.clone()))].into();
        assert_eq!(log_of("old", &logs), Ok(None));
        assert_eq!(log_of("failed", &logs), Err(failed));
        assert!(log_of("left out of the answer", &logs).is_err());
    }
}
