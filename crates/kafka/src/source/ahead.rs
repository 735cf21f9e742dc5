//! How much librdkafka fetches ahead of the streams. Each partition has a queue of its own there, so that it is bounded for each
//! partition; the process wants a bound for all of them.

use std::time::{Duration, Instant};

use oncebox_kafka_ffi::TopicPattern;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::MetadataTopic;
use tracing::debug;

use crate::quiet::Quiet;

/// How long the cluster may take to say how many partitions there are. Nothing is read before.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How many there are if it does not say.
const PARTITIONS_IF_UNKNOWN: usize = 256;
/// Enough for one partition, and the least.
const MOST: usize = 1280 * 1024;
const LEAST: usize = 4 * 1024;
/// The bounds of one answer to a fetch, which holds records of many partitions. None of its memory is free before all of them
/// are read.
const FETCH_MOST: usize = 8 * 1024 * 1024;
const FETCH_LEAST: usize = 1024 * 1024;

/// What may be fetched ahead, and for how many partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) bytes: usize,
    pub(crate) partitions: usize,
}

impl Ahead {
    /// Asks how many partitions the topics have: this process may get all of them.
    pub(super) fn ask(client: &BaseConsumer<Quiet>, topics: &[String], bytes: usize) -> Self {
        let until = Instant::now() + ANSWER_TIMEOUT;
        // Without a token nobody answers, and then the number is not known.
        if let Err(error) = client.context().tokens.wait_and_hand_to(client.client(), ANSWER_TIMEOUT) {
            debug!(%error, "the topics cannot be asked for yet");
        }
        let mut partitions = 0;
        for topic in topics {
            let left = until.saturating_duration_since(Instant::now());
            let pattern = TopicPattern::new(topic).ok();
            let one = Some(topic.as_str()).filter(|_| pattern.is_none());
            let asked = client.fetch_metadata(one, left.max(Duration::from_millis(1)));
            let is_meant = |t: &&MetadataTopic| match &pattern {
                Some(pattern) => pattern.matches(t.name()),
                None => t.name() == topic,
            };
            let found = asked.as_ref().map(|found| {
                found.topics().iter().filter(is_meant).map(|t| t.partitions().len()).sum::<usize>()
            });
            partitions += match (found, &pattern) {
                (Ok(count), None) if count > 0 => count,
                // There may be more soon.
                (Ok(count), Some(_)) => count.max(PARTITIONS_IF_UNKNOWN),
                _ => PARTITIONS_IF_UNKNOWN,
            };
        }
        debug!(partitions, bytes, "fetching ahead");
        Self { bytes, partitions }
    }

    /// As librdkafka wants it. A partition is fetched as long as its queue is below the first, and then up to the second at once;
    /// a message that is larger comes alone.
    ///
    /// The last is how long a broker holds a fetch for partitions without news. librdkafka has one fetch at a time for each broker,
    /// and names all partitions in it. A long wait holds up a busy partition whose queue has run dry meanwhile; short waits make
    /// many fetches, which cost the more the more partitions there are.
    pub(crate) fn properties(self) -> [(&'static str, String); 4] {
        let each = (self.bytes / self.partitions.max(1)).clamp(LEAST, MOST);
        let fetch = self.bytes / 8;
        [
            ("queued.max.messages.kbytes", (each / 5 * 4 / 1024).to_string()),
            ("fetch.message.max.bytes", (each / 5).to_string()),
            ("fetch.max.bytes", fetch.clamp(FETCH_LEAST, FETCH_MOST).to_string()),
            ("fetch.wait.max.ms", (50 + self.partitions / 20).min(500).to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_partitions_are_fetched_in_smaller_pieces() {
        let fetched = |bytes, partitions| Ahead { bytes, partitions }.properties().map(|(_, value)| value);
        assert_eq!(fetched(64 << 20, 6), ["1024", "262144", "8388608", "50"]);
        assert_eq!(fetched(64 << 20, 51), ["1024", "262144", "8388608", "52"]);
        assert_eq!(fetched(64 << 20, 1_000), ["52", "13421", "8388608", "100"]);
        assert_eq!(fetched(1 << 20, 10_000), ["3", "819", "1048576", "500"]);
    }
}
