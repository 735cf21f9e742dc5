//! A request becomes one message, or several if it is a batch of CloudEvents.

mod cloudevents;
mod headers;
mod idempotency_key;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use oncebox_core::inbox::Selector;
use oncebox_core::message::{Headers, PATH_PREFIX, Record};

/// How the requests of one inbox become records.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    /// The topic of the records.
    pub(crate) topic: Arc<str>,
    /// Where the key is. A message that has none there has no key.
    pub(crate) key: Option<Selector>,
    /// The headers that prove where a request comes from. They are not kept.
    pub(crate) proofs: Vec<HeaderName>,
    /// The most events in a batch.
    pub(crate) max_batch: usize,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrival<'r> {
    pub(crate) headers: &'r HeaderMap,
    /// The parameters of its path.
    pub(crate) parameters: &'r [(&'r str, &'r str)],
    pub(crate) body: Bytes,
    /// When, in milliseconds since 1970.
    pub(crate) at_ms: i64,
}

/// Why a request cannot become messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the header `idempotency-key` is there more than once")]
    KeyRepeated,
    #[error("the header `idempotency-key` begins with a quote and is not a string as RFC 8941 has it")]
    KeyNotAString,
    #[error("the batch is not a JSON array of objects: {0}")]
    BatchNotJson(String),
    #[error("the batch has more than {0} events; send smaller ones")]
    BatchTooLong(usize),
    #[error("batches are taken as application/cloudevents-batch+json alone")]
    BatchFormat,
}

impl Mapping {
    /// The records of a request. Their numbers are for the source to give.
    pub(crate) fn records(&self, arrival: Arrival<'_>) -> Result<Vec<Record>, Malformed> {
        let mut headers = headers::kept(arrival.headers, &self.proofs)?;
        for (name, value) in arrival.parameters {
            headers.push(format!("{PATH_PREFIX}{name}"), Some(Bytes::copy_from_slice(value.as_bytes())));
        }
        let payloads = match cloudevents::batch(&headers, &arrival.body, self.max_batch)? {
            Some(events) => {
                headers = cloudevents::headers_of_one(&headers);
                events.into_iter().map(Some).collect()
            }
            // As the webhook sink sends a tombstone.
            None if arrival.body.is_empty() && headers.last("content-type").is_none() => vec![None],
            None => vec![Some(arrival.body)],
        };
        Ok(payloads.into_iter().map(|payload| self.record(headers.clone(), payload, arrival.at_ms)).collect())
    }

    fn record(&self, headers: Headers, payload: Option<Bytes>, at_ms: i64) -> Record {
        let mut record = Record::at(Arc::clone(&self.topic), 0, 0);
        record.headers = headers;
        record.payload = payload;
        record.timestamp_ms = Some(at_ms);
        record.key = self.key.as_ref().and_then(|key| key.select(&record).ok()).map(Bytes::from);
        record
    }
}
