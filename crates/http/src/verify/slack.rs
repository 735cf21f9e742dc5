//! Slack: `x-slack-signature: v0=…` over `v0:timestamp:body`.

use http::{HeaderMap, HeaderName};

use super::body::Encoding;
use super::claim::Claim;
use super::error::NotVerified;
use super::header::once;
use super::keys::{Keys, Signature};

const TIMESTAMP: HeaderName = HeaderName::from_static("x-slack-request-timestamp");
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("x-slack-signature");

pub(super) fn claim<'v>(
    keys: &'v Keys,
    headers: &HeaderMap,
    within: impl Fn(&str, HeaderName) -> Result<(), NotVerified>,
) -> Result<Claim<'v>, NotVerified> {
    let timestamp = once(headers, &TIMESTAMP)?;
    let value = once(headers, &SIGNATURE)?;
    within(timestamp, TIMESTAMP)?;
    let signature = value.strip_prefix("v0=").and_then(|hex| Encoding::Hex.decode(hex));
    let signatures = signature.map(Signature::Hmac).into_iter().collect();
    Claim::signed(keys, SIGNATURE, format!("v0:{timestamp}:").into_bytes(), signatures)
}
