//! Why a secret cannot be used, and why a request is not verified. Neither repeats a secret or a signature.

use http::HeaderName;

/// A secret of the configuration that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no secret at all.
    #[error("there is no secret to verify requests with; give at least one")]
    None,
    /// An empty secret would let everybody in.
    #[error("a secret to verify requests with is empty; is its environment variable set?")]
    Empty,
    /// `whsec_` or `whpk_`, and then something else than base64.
    #[error("a secret begins with {0}, and what follows is not base64")]
    NotBase64(&'static str),
    /// A public key of another length.
    #[error("a public key (whpk_) has {0} bytes; ed25519 keys have 32")]
    PublicKeyLength(usize),
    /// The sender's half of a key pair.
    #[error("a private key (whsk_) is for the sender alone; give its public key (whpk_)")]
    PrivateKey,
    /// Basic authentication ends the user at the first colon.
    #[error("the name of a user for basic authentication contains a colon")]
    ColonInUser,
}

/// Why a request is not verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotVerified {
    /// A header that the check needs is not there.
    #[error("the header `{0}` is missing")]
    Missing(HeaderName),
    /// Two of them: the check might read one, and the inbox the other.
    #[error("the header `{0}` is there more than once")]
    Repeated(HeaderName),
    /// It is not written as the scheme asks for.
    #[error("the header `{0}` cannot be read")]
    Unreadable(HeaderName),
    /// The request is too old, or from the future: a copy of an old one, or a clock that is wrong.
    #[error("the time in the header `{name}` is more than {tolerance_s} s away from the time here")]
    OutOfTime {
        /// Where the time is.
        name: HeaderName,
        /// How far it may be away.
        tolerance_s: u64,
    },
    /// The path names nobody who has secrets here.
    #[error("the `{0}` in the path is not known here")]
    Stranger(String),
    /// No secret fits.
    #[error("no signature, token or password in the header `{0}` is right")]
    NoMatch(HeaderName),
}
