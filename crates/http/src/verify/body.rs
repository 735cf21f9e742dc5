//! HMAC-SHA256 over the body alone: GitHub, Shopify, and many others under a header of their own.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName};

use super::claim::Claim;
use super::error::NotVerified;
use super::header::once;
use super::keys::{Keys, Signature};

/// How a signature is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Two digits for each byte, in either case.
    Hex,
    /// The standard alphabet, with padding.
    Base64,
}

impl Encoding {
    /// The bytes, if the text is written like this.
    pub(super) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Base64 => BASE64_STANDARD.decode(text).ok(),
            Self::Hex => {
                let digit =
                    |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let (pairs, rest) = text.as_bytes().as_chunks::<2>();
                let byte = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
                if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
            }
        }
    }
}

/// Where the signature of a body is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodySignature {
    /// The header that holds it.
    pub header: HeaderName,
    /// How it is written.
    pub encoding: Encoding,
    /// What stands before it, such as `sha256=`; mostly nothing.
    pub prefix: String,
}

impl BodySignature {
    pub(super) fn github() -> Self {
        Self {
            header: HeaderName::from_static("x-hub-signature-256"),
            encoding: Encoding::Hex,
            prefix: "sha256=".to_owned(),
        }
    }

    pub(super) fn shopify() -> Self {
        Self {
            header: HeaderName::from_static("x-shopify-hmac-sha256"),
            encoding: Encoding::Base64,
            prefix: String::new(),
        }
    }

    pub(super) fn claim<'v>(&self, keys: &'v Keys, headers: &HeaderMap) -> Result<Claim<'v>, NotVerified> {
        let value = once(headers, &self.header)?;
        let signature = value.strip_prefix(&self.prefix).and_then(|text| self.encoding.decode(text));
        let signatures = signature.map(Signature::Hmac).into_iter().collect();
        Claim::signed(keys, self.header.clone(), Vec::new(), signatures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hex_is_pairs_of_digits_and_nothing_else() {
        assert_eq!(Encoding::Hex.decode("00fFaB"), Some(vec![0, 255, 171]));
        assert_eq!(Encoding::Hex.decode(""), Some(vec![]));
        for odd in ["0", "0g", "+1", " 00", "00 ", "0x00", "ａ0"] {
            assert_eq!(Encoding::Hex.decode(odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            prop_assert_eq!(Encoding::Hex.decode(&hex), Some(bytes.clone()));
            prop_assert_eq!(Encoding::Base64.decode(&BASE64_STANDARD.encode(&bytes)), Some(bytes));
        }
    }
}
