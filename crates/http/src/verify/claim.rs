//! What the headers of a request claim, until its body proves it.

use std::fmt;

use http::HeaderName;

use super::error::NotVerified;
use super::keys::{Keys, Signature};

/// The most signatures of a request that are looked at. Senders that rotate their keys send two.
pub(super) const MAX_SIGNATURES: usize = 16;

/// What the headers of a request claim. Only [`Claim::check`] says whether it is so.
#[must_use]
pub struct Claim<'v>(Kind<'v>);

enum Kind<'v> {
    /// Nothing more to check.
    Proven,
    Signed {
        keys: &'v Keys,
        header: HeaderName,
        /// What is signed before the body.
        preamble: Vec<u8>,
        signatures: Vec<Signature>,
    },
}

impl<'v> Claim<'v> {
    pub(super) fn proven() -> Self {
        Self(Kind::Proven)
    }

    /// These signatures, over the preamble and the body. Those that no key could have made are left out before.
    pub(super) fn signed(
        keys: &'v Keys,
        header: HeaderName,
        preamble: Vec<u8>,
        signatures: Vec<Signature>,
    ) -> Result<Self, NotVerified> {
        if signatures.is_empty() {
            return Err(NotVerified::Unreadable(header));
        }
        Ok(Self(Kind::Signed { keys, header, preamble, signatures }))
    }

    /// Whether the body is what was signed.
    pub fn check(self, body: &[u8]) -> Result<(), NotVerified> {
        match self.0 {
            Kind::Proven => Ok(()),
            Kind::Signed { keys, header, preamble, signatures } => {
                if keys.made_one_of(&signatures, &preamble, body) {
                    Ok(())
                } else {
                    Err(NotVerified::NoMatch(header))
                }
            }
        }
    }
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Proven => "Claim(proven)",
            Kind::Signed { .. } => "Claim(signed)",
        })
    }
}
