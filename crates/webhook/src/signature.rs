//! The signature of the Standard Webhooks specification.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::Error;

const PREFIX: &str = "whsec_";

/// Secrets are copied by people, and padding gets lost.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A key to sign with.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl Key {
    /// `whsec_` and base64, or any other text as it is.
    pub(crate) fn parse(secret: &str) -> Result<Self, Error> {
        let bytes = match secret.strip_prefix(PREFIX) {
            None => secret.as_bytes().to_vec(),
            Some(encoded) => LENIENT
                .decode(encoded)
                .map_err(|_| Error::Secret("begins with whsec_, and what follows is not base64"))?,
        };
        if bytes.is_empty() {
            return Err(Error::Secret("is empty: give 24 to 64 random bytes"));
        }
        let hmac = Hmac::new_from_slice(&bytes).map_err(|_| Error::Secret("has an impossible length"))?;
        Ok(Self(hmac))
    }

    fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let mut hmac = self.0.clone();
        hmac.update(format!("{id}.{timestamp}.").as_bytes());
        hmac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(hmac.finalize().into_bytes()))
    }
}

/// The value of `webhook-signature`: one signature for each key.
pub(crate) fn signatures(keys: &[Key], id: &str, timestamp: u64, body: &[u8]) -> String {
    keys.iter().map(|key| key.sign(id, timestamp, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of the reference libraries; OpenSSL agrees.
    #[test]
    fn the_known_vector() {
        let key = Key::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn plain_text_is_the_key_as_it_is() {
        let plain = Key::parse("a secret in plain text").unwrap();
        for same in ["whsec_YSBzZWNyZXQgaW4gcGxhaW4gdGV4dA==", "whsec_YSBzZWNyZXQgaW4gcGxhaW4gdGV4dA"] {
            let encoded = Key::parse(same).unwrap();
            assert_eq!(plain.sign("id", 1, b"body"), encoded.sign("id", 1, b"body"));
        }
    }

    #[test]
    fn two_keys_sign_side_by_side() {
        let keys = [Key::parse("old").unwrap(), Key::parse("new").unwrap()];
        let both = signatures(&keys, "id", 1, b"body");
        assert_eq!(both, format!("{} {}", keys[0].sign("id", 1, b"body"), keys[1].sign("id", 1, b"body")));
    }

    #[test]
    fn a_useless_secret_is_refused_without_being_shown() {
        for secret in ["", "whsec_", "whsec_canary!"] {
            let error = Key::parse(secret).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }
}
