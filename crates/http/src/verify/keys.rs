//! The secrets that requests are signed with.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use oncebox_core::secret::Secret;
use ring::signature::{ED25519, UnparsedPublicKey};
use sha2::Sha256;

use super::error::KeyError;

const SYMMETRIC: &str = "whsec_";
const PUBLIC: &str = "whpk_";
const PRIVATE: &str = "whsk_";
const PUBLIC_KEY_BYTES: usize = 32;

/// Secrets are copied by people, and padding gets lost.
pub(super) const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A signature, and the kind of key that must have made it.
#[derive(PartialEq, Eq)]
pub(super) enum Signature {
    Hmac(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Clone)]
enum Key {
    Hmac(Hmac<Sha256>),
    Ed25519(UnparsedPublicKey<[u8; PUBLIC_KEY_BYTES]>),
}

/// The secrets of a sender. A request is good if one of them made one of its signatures.
#[derive(Clone)]
pub(super) struct Keys(Vec<Key>);

impl Keys {
    /// The bytes of the text are the key.
    pub(super) fn as_they_are(secrets: impl IntoIterator<Item = Secret>) -> Result<Self, KeyError> {
        Self::of(secrets, |text| Key::hmac(text.as_bytes()))
    }

    /// The forms of the Standard Webhooks specification; a text without a prefix is taken as it is, as our webhook sink does.
    pub(super) fn of_standard_webhooks(secrets: impl IntoIterator<Item = Secret>) -> Result<Self, KeyError> {
        Self::of(secrets, |text| {
            if let Some(encoded) = text.strip_prefix(SYMMETRIC) {
                Key::hmac(&decode(encoded, SYMMETRIC)?)
            } else if let Some(encoded) = text.strip_prefix(PUBLIC) {
                Key::ed25519(decode(encoded, PUBLIC)?)
            } else if text.starts_with(PRIVATE) {
                Err(KeyError::PrivateKey)
            } else {
                Key::hmac(text.as_bytes())
            }
        })
    }

    fn of(
        secrets: impl IntoIterator<Item = Secret>,
        key: impl Fn(&str) -> Result<Key, KeyError>,
    ) -> Result<Self, KeyError> {
        let keys = secrets.into_iter().map(|secret| key(secret.expose())).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(KeyError::None) } else { Ok(Self(keys)) }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one of the keys made one of the signatures over these bytes.
    pub(super) fn made_one_of(&self, signatures: &[Signature], preamble: &[u8], body: &[u8]) -> bool {
        // All are tried: which one fits is nobody's business.
        self.0.iter().fold(false, |made, key| key.made_one_of(signatures, preamble, body) | made)
    }
}

impl Key {
    fn hmac(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        // A key of any length will do, so that this cannot fail.
        Hmac::new_from_slice(bytes).map(Self::Hmac).map_err(|_| KeyError::Empty)
    }

    fn ed25519(bytes: Vec<u8>) -> Result<Self, KeyError> {
        let length = bytes.len();
        let key = <[u8; PUBLIC_KEY_BYTES]>::try_from(bytes).map_err(|_| KeyError::PublicKeyLength(length))?;
        Ok(Self::Ed25519(UnparsedPublicKey::new(&ED25519, key)))
    }

    fn made_one_of(&self, signatures: &[Signature], preamble: &[u8], body: &[u8]) -> bool {
        match self {
            Self::Hmac(key) => {
                let mut mac = key.clone();
                mac.update(preamble);
                mac.update(body);
                let fits = |made: bool, signature: &Signature| match signature {
                    Signature::Hmac(tag) => mac.clone().verify_slice(tag).is_ok() | made,
                    Signature::Ed25519(_) => made,
                };
                signatures.iter().fold(false, fits)
            }
            Self::Ed25519(key) => {
                let mut candidates = signatures.iter().filter_map(|signature| match signature {
                    Signature::Ed25519(bytes) => Some(bytes),
                    Signature::Hmac(_) => None,
                });
                let signed = [preamble, body].concat();
                // Nothing here is a secret.
                candidates.any(|bytes| key.verify(&signed, bytes).is_ok())
            }
        }
    }
}

fn decode(encoded: &str, prefix: &'static str) -> Result<Vec<u8>, KeyError> {
    LENIENT.decode(encoded).map_err(|_| KeyError::NotBase64(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(secret: &str) -> KeyError {
        Keys::of_standard_webhooks([Secret::new(secret)]).err().unwrap()
    }

    #[test]
    fn a_useless_secret_is_refused_without_being_shown() {
        for (secret, error) in [
            ("", KeyError::Empty),
            ("whsec_", KeyError::Empty),
            ("whsec_canary!", KeyError::NotBase64("whsec_")),
            ("whpk_canary!", KeyError::NotBase64("whpk_")),
            ("whpk_Y2FuYXJ5", KeyError::PublicKeyLength(6)),
            ("whsk_canary", KeyError::PrivateKey),
        ] {
            assert_eq!(refused(secret), error);
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
        assert_eq!(Keys::as_they_are([]).err(), Some(KeyError::None));
        assert_eq!(Keys::as_they_are([Secret::new("a"), Secret::new("")]).err(), Some(KeyError::Empty));
    }

    #[test]
    fn plain_text_is_the_key_as_it_is() {
        let plain = Keys::of_standard_webhooks([Secret::new("a secret in plain text")]).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(b"a secret in plain text").unwrap();
        mac.update(b"id.1.body");
        let tag = Signature::Hmac(mac.finalize().into_bytes().to_vec());
        assert!(plain.made_one_of(std::slice::from_ref(&tag), b"id.1.", b"body"));
        for same in ["whsec_YSBzZWNyZXQgaW4gcGxhaW4gdGV4dA==", "whsec_YSBzZWNyZXQgaW4gcGxhaW4gdGV4dA"] {
            let encoded = Keys::of_standard_webhooks([Secret::new(same)]).unwrap();
            assert!(encoded.made_one_of(std::slice::from_ref(&tag), b"id.1.", b"body"));
        }
    }

    #[test]
    fn a_signature_that_is_cut_short_is_none() {
        let keys = Keys::as_they_are([Secret::new("secret")]).unwrap();
        for tag in [&b""[..], &[0; 31], &[0; 33]] {
            assert!(!keys.made_one_of(&[Signature::Hmac(tag.to_vec())], b"", b"body"));
        }
        assert!(!keys.made_one_of(&[], b"", b"body"));
    }
}
