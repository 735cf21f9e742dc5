//! Standard Webhooks: `webhook-signature` over `id.timestamp.body`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName};

use super::claim::{Claim, MAX_SIGNATURES};
use super::error::NotVerified;
use super::header::once;
use super::keys::{Keys, Signature};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

pub(super) fn claim<'v>(
    keys: &'v Keys,
    headers: &HeaderMap,
    within: impl Fn(&str, HeaderName) -> Result<(), NotVerified>,
) -> Result<Claim<'v>, NotVerified> {
    let id = once(headers, &ID)?;
    let timestamp = once(headers, &TIMESTAMP)?;
    let list = once(headers, &SIGNATURE)?;
    // Otherwise what is signed could be read as another id, another time and another body.
    if id.is_empty() || id.contains('.') {
        return Err(NotVerified::Unreadable(ID));
    }
    within(timestamp, TIMESTAMP)?;
    let signatures = list.split_ascii_whitespace().filter_map(signature).take(MAX_SIGNATURES).collect();
    Claim::signed(keys, SIGNATURE, format!("{id}.{timestamp}.").into_bytes(), signatures)
}

/// Versions that are not known are for others.
fn signature(text: &str) -> Option<Signature> {
    let (version, encoded) = text.split_once(',')?;
    let bytes = BASE64_STANDARD.decode(encoded).ok()?;
    match version {
        "v1" => Some(Signature::Hmac(bytes)),
        "v1a" => Some(Signature::Ed25519(bytes)),
        _ => None,
    }
}
