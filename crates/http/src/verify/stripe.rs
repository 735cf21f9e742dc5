//! Stripe: `stripe-signature: t=…,v1=…` over `t.body`.

use http::{HeaderMap, HeaderName};

use super::body::Encoding;
use super::claim::{Claim, MAX_SIGNATURES};
use super::error::NotVerified;
use super::header::once;
use super::keys::{Keys, Signature};

pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("stripe-signature");

pub(super) fn claim<'v>(
    keys: &'v Keys,
    headers: &HeaderMap,
    within: impl Fn(&str, HeaderName) -> Result<(), NotVerified>,
) -> Result<Claim<'v>, NotVerified> {
    let unreadable = || NotVerified::Unreadable(SIGNATURE);
    let value = once(headers, &SIGNATURE)?;
    let parts = || value.split(',').filter_map(|part| part.trim().split_once('='));
    let mut times = parts().filter(|(name, _)| *name == "t").map(|(_, time)| time);
    // Two times would be two meanings.
    let (Some(timestamp), None) = (times.next(), times.next()) else { return Err(unreadable()) };
    within(timestamp, SIGNATURE)?;
    // `v0` and whatever else is there is not for production.
    let signatures =
        parts().filter(|(name, _)| *name == "v1").filter_map(|(_, hex)| Encoding::Hex.decode(hex));
    let signatures = signatures.map(Signature::Hmac).take(MAX_SIGNATURES).collect();
    Claim::signed(keys, SIGNATURE, format!("{timestamp}.").into_bytes(), signatures)
}
