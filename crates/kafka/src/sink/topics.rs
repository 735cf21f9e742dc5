//! Which topics exist. A producer would wait for a topic that does not, and hold up the relay without a word.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaRespErr;

use super::blocking::on_a_thread;
use super::producer::{Client, Producer};
use crate::error::Error;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The topics that were seen. It forgets one when something goes wrong with it.
#[derive(Debug, Default)]
pub(super) struct Topics(Mutex<HashSet<String>>);

impl Topics {
    pub(super) async fn make_sure_of(&self, topic: &str, producer: &Producer) -> Result<(), Error> {
        if self.seen().contains(topic) {
            return Ok(());
        }
        let (client, name) = (producer.client().clone(), topic.to_owned());
        on_a_thread(move || ask(&client, &name)).await?;
        self.seen().insert(topic.to_owned());
        Ok(())
    }

    pub(super) fn forget(&self, topic: &str) {
        self.seen().remove(topic);
    }

    fn seen(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ask(client: &Client, topic: &str) -> Result<(), Error> {
    use RDKafkaRespErr::{RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART};
    let failed = |e: &KafkaError| Error::request(format!("whether topic {topic} exists"), e);
    let metadata = client.client().fetch_metadata(Some(topic), ANSWER_TIMEOUT).map_err(|e| failed(&e))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let unknown = || Error::UnknownTopic(topic.to_owned());
    match found.ok_or_else(unknown)?.error() {
        // A topic that was just created gets its leader soon: the producer waits for it.
        None | Some(RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE) => Ok(()),
        Some(RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) => Err(unknown()),
        Some(other) => Err(failed(&KafkaError::MetadataFetch(RDKafkaErrorCode::from(other)))),
    }
}
