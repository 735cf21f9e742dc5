//! `authorization`: a token, or a user and a password.

use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, header::AUTHORIZATION};
use oncebox_core::secret::Secret;
use sha2::Sha256;

use super::claim::Claim;
use super::error::{KeyError, NotVerified};
use super::header::once;
use super::keys::LENIENT;

/// Texts that let a request in. Only their digests are kept: those are all of one length, so that comparing them tells
/// nothing, not even a length.
#[derive(Clone)]
pub(super) struct Credentials(Vec<Vec<u8>>);

impl Credentials {
    pub(super) fn of_tokens(tokens: impl IntoIterator<Item = Secret>) -> Result<Self, KeyError> {
        Self::of(tokens.into_iter().map(|token| {
            let token = token.expose();
            if token.is_empty() { Err(KeyError::Empty) } else { digest(token.as_bytes()) }
        }))
    }

    pub(super) fn of_users<U: AsRef<str>>(
        users: impl IntoIterator<Item = (U, Secret)>,
    ) -> Result<Self, KeyError> {
        Self::of(users.into_iter().map(|(user, password)| {
            let (user, password) = (user.as_ref(), password.expose());
            if user.contains(':') {
                return Err(KeyError::ColonInUser);
            }
            if password.is_empty() {
                return Err(KeyError::Empty);
            }
            digest(format!("{user}:{password}").as_bytes())
        }))
    }

    fn of(digests: impl Iterator<Item = Result<Vec<u8>, KeyError>>) -> Result<Self, KeyError> {
        let digests = digests.collect::<Result<Vec<_>, _>>()?;
        if digests.is_empty() { Err(KeyError::None) } else { Ok(Self(digests)) }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Compares in constant time, and with all of them.
    fn let_in(&self, text: &[u8]) -> bool {
        let Ok(mac) = mac(text) else { return false };
        self.0.iter().fold(false, |found, digest| mac.clone().verify_slice(digest).is_ok() | found)
    }
}

fn mac(text: &[u8]) -> Result<Hmac<Sha256>, KeyError> {
    let mut mac = Hmac::new_from_slice(b"oncebox credentials").map_err(|_| KeyError::Empty)?;
    mac.update(text);
    Ok(mac)
}

fn digest(text: &[u8]) -> Result<Vec<u8>, KeyError> {
    Ok(mac(text)?.finalize().into_bytes().to_vec())
}

pub(super) fn bearer<'v>(tokens: &Credentials, headers: &HeaderMap) -> Result<Claim<'v>, NotVerified> {
    let token = after_scheme(headers, "bearer")?;
    if tokens.let_in(token.as_bytes()) {
        Ok(Claim::proven())
    } else {
        Err(NotVerified::NoMatch(AUTHORIZATION))
    }
}

pub(super) fn basic<'v>(users: &Credentials, headers: &HeaderMap) -> Result<Claim<'v>, NotVerified> {
    let encoded = after_scheme(headers, "basic")?;
    let pair = LENIENT.decode(encoded).map_err(|_| NotVerified::Unreadable(AUTHORIZATION))?;
    if users.let_in(&pair) { Ok(Claim::proven()) } else { Err(NotVerified::NoMatch(AUTHORIZATION)) }
}

/// What follows the name of the scheme, which is written in any case.
fn after_scheme<'h>(headers: &'h HeaderMap, scheme: &str) -> Result<&'h str, NotVerified> {
    let value = once(headers, &AUTHORIZATION)?;
    match value.split_once(' ') {
        Some((found, rest)) if found.eq_ignore_ascii_case(scheme) => Ok(rest.trim_start()),
        _ => Err(NotVerified::Unreadable(AUTHORIZATION)),
    }
}
