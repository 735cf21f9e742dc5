//! The headers of a request that become headers of its message.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use oncebox_core::message::Headers;

use super::Malformed;
use super::cloudevents;
use super::idempotency_key::{self, NAME as IDEMPOTENCY_KEY};

/// These are about the connection and the transfer, not about the message.
const OF_THE_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// These let somebody in. Messages are shown to people and kept as dead letters.
const CREDENTIALS: [HeaderName; 12] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::PROXY_AUTHORIZATION,
    header::SET_COOKIE,
    HeaderName::from_static("stripe-signature"),
    HeaderName::from_static("webhook-signature"),
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-gitlab-token"),
    HeaderName::from_static("x-hub-signature"),
    HeaderName::from_static("x-hub-signature-256"),
    HeaderName::from_static("x-shopify-hmac-sha256"),
    HeaderName::from_static("x-slack-signature"),
];

/// The headers of the message, with names in lower case, and the values that HTTP has an encoding for decoded.
pub(super) fn kept(headers: &HeaderMap, proofs: &[HeaderName]) -> Result<Headers, Malformed> {
    if headers.get_all(IDEMPOTENCY_KEY).iter().nth(1).is_some() {
        return Err(Malformed::KeyRepeated);
    }
    let of_the_connection = named_by_connection(headers);
    let mut kept = Headers::new();
    for (name, value) in headers {
        let left_out = OF_THE_CONNECTION.contains(name)
            || CREDENTIALS.contains(name)
            || proofs.contains(name)
            || of_the_connection.contains(name)
            // The attributes of an event have other names over HTTP: nobody shall send both.
            || name.as_str().starts_with("ce_");
        if !left_out {
            kept.push(name.as_str(), Some(value_of(name, value)?));
        }
    }
    Ok(kept)
}

fn value_of(name: &HeaderName, value: &HeaderValue) -> Result<Bytes, Malformed> {
    let bytes = value.as_bytes();
    if *name == IDEMPOTENCY_KEY {
        idempotency_key::read(bytes).map(Bytes::from)
    } else if name.as_str().starts_with("ce-") {
        Ok(cloudevents::attribute(bytes).into())
    } else {
        Ok(Bytes::copy_from_slice(bytes))
    }
}

/// `connection` names further headers that are for the next hop alone.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}
