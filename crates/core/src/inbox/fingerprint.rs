//! The fingerprint of a payload: how a copy is told from another message under the same id.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::item::Item;
use super::receipt::ReceiptKey;
use crate::store::Claim;

/// The first sixteen bytes of the SHA-256 of a payload, kept with the receipt of a message where payloads are compared:
/// see [`OpenStream::compare_payloads`](crate::source::OpenStream::compare_payloads).
///
/// Only the bytes count. Headers say how a message came, and that may differ from one delivery to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// That of these bytes.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        let digest = Sha256::digest(payload);
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&digest[..16]);
        Self(fingerprint)
    }

    /// The bytes, as databases keep them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl From<[u8; 16]> for Fingerprint {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// The fingerprints of the messages of a transaction, by their places. None where payloads are not compared.
#[derive(Debug, Default)]
pub(super) struct Fingerprints(Vec<Fingerprint>);

impl Fingerprints {
    pub(super) fn of(items: &[Item]) -> Self {
        // A request without a body and one with an empty one look the same on the way.
        let payload = |item: &Item| Fingerprint::of(item.record().payload.as_deref().unwrap_or_default());
        Self(items.iter().map(payload).collect())
    }

    pub(super) fn at(&self, place: usize) -> Option<Fingerprint> {
        self.0.get(place).copied()
    }

    /// For each item: whether it is another message than the one that its receipt was written for. `firsts` are the
    /// [`first_payloads`]; a receipt that has no fingerprint may be of any payload.
    pub(super) fn differing(&self, items: &[Item], firsts: &HashMap<ReceiptKey, Fingerprint>) -> Vec<bool> {
        let differs = |(item, own): (&Item, &Fingerprint)| match item {
            Item::Fit(_, key) => firsts.get(key).is_some_and(|first| first != own),
            Item::Unfit(_) => false,
        };
        items.iter().zip(&self.0).map(differs).collect()
    }
}

/// What receipts were written for: the fresh ones of a transaction, and those that were `there` before.
pub(super) fn first_payloads(
    claims: &[Claim<'_>],
    fresh: &[bool],
    there: &[(usize, Fingerprint)],
) -> HashMap<ReceiptKey, Fingerprint> {
    let written = claims.iter().zip(fresh).filter(|(_, fresh)| **fresh);
    let written = written.filter_map(|(claim, _)| Some((claim.key, claim.fingerprint?)));
    written.chain(there.iter().map(|(at, fingerprint)| (claims[*at].key, *fingerprint))).collect()
}
