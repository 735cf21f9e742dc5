//! Whether a request comes from who it says: checked on the raw bytes, before anything of it is parsed.
//!
//! | constructor | scheme | what is signed |
//! |---|---|---|
//! | [`Verifier::standard_webhooks`] | `webhook-signature: v1,…` (HMAC-SHA256) and `v1a,…` (ed25519) | id, time and body |
//! | [`Verifier::stripe`] | `stripe-signature: t=…,v1=…` | time and body |
//! | [`Verifier::slack`] | `x-slack-signature: v0=…` | time and body |
//! | [`Verifier::github`] | `x-hub-signature-256: sha256=…` | body |
//! | [`Verifier::shopify`] | `x-shopify-hmac-sha256: …` in base64 | body |
//! | [`Verifier::hmac`] | a header of your choice, HMAC-SHA256 in hex or base64 | body |
//! | [`Verifier::bearer`] | `authorization: Bearer …` | nothing |
//! | [`Verifier::basic`] | `authorization: Basic …` | nothing |
//!
//! All take several secrets: how one is changed without a gap. Everything is compared in constant time. A header that the
//! check reads must be there exactly once: otherwise the check could read one and the inbox the other.

mod access;
mod body;
mod claim;
mod credentials;
mod error;
mod header;
mod keys;
mod slack;
mod standard;
mod stripe;
#[cfg(test)]
mod tests;
mod time;

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, HeaderName, header::AUTHORIZATION};

pub use access::Access;
pub use body::{BodySignature, Encoding};
pub use claim::Claim;
pub use error::{KeyError, NotVerified};
pub use oncebox_core::secret::Secret;
pub use time::DEFAULT_TOLERANCE;

use credentials::Credentials;
use keys::Keys;
use time::Tolerance;

const SIGNATURE_CHALLENGE: &str = r#"Signature realm="oncebox""#;

/// Checks requests against its secrets. `Debug` shows none of them.
#[derive(Clone)]
pub struct Verifier {
    scheme: Scheme,
    tolerance: Tolerance,
}

#[derive(Clone)]
enum Scheme {
    StandardWebhooks(Keys),
    Stripe(Keys),
    Slack(Keys),
    Body(Keys, BodySignature),
    Bearer(Credentials),
    Basic(Credentials),
}

impl Verifier {
    /// Standard Webhooks: `whsec_` and base64, or any other text as it is, for HMAC-SHA256; `whpk_` and base64 is a public
    /// key for ed25519.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use oncebox::http::verify::{Secret, Verifier};
    ///
    /// let verifier = Verifier::standard_webhooks([Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")])?;
    /// let mut headers = HeaderMap::new();
    /// headers.insert("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek".parse()?);
    /// headers.insert("webhook-timestamp", "1614265330".parse()?);
    /// headers.insert("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".parse()?);
    /// verifier.verify(&headers, br#"{"test": 2432232314}"#, 1_614_265_330)?;
    /// assert!(verifier.verify(&headers, b"another body", 1_614_265_330).is_err());
    /// # Ok::<(), oncebox::BoxError>(())
    /// ```
    pub fn standard_webhooks(secrets: impl IntoIterator<Item = Secret>) -> Result<Self, KeyError> {
        Ok(Self::of(Scheme::StandardWebhooks(Keys::of_standard_webhooks(secrets)?)))
    }

    /// Stripe. The secret is taken as it is, with its `whsec_`.
    pub fn stripe(secrets: impl IntoIterator<Item = Secret>) -> Result<Self, KeyError> {
        Ok(Self::of(Scheme::Stripe(Keys::as_they_are(secrets)?)))
    }

    /// Slack: the signing secret of the app.
    pub fn slack(secrets: impl IntoIterator<Item = Secret>) -> Result<Self, KeyError> {
        Ok(Self::of(Scheme::Slack(Keys::as_they_are(secrets)?)))
    }

    /// GitHub: the secret of the webhook.
    pub fn github(secrets: impl IntoIterator<Item = Secret>) -> Result<Self, KeyError> {
        Self::hmac(secrets, BodySignature::github())
    }

    /// Shopify: the client secret of the app.
    pub fn shopify(secrets: impl IntoIterator<Item = Secret>) -> Result<Self, KeyError> {
        Self::hmac(secrets, BodySignature::shopify())
    }

    /// HMAC-SHA256 over the body, in a header of one's own.
    pub fn hmac(
        secrets: impl IntoIterator<Item = Secret>,
        signature: BodySignature,
    ) -> Result<Self, KeyError> {
        Ok(Self::of(Scheme::Body(Keys::as_they_are(secrets)?, signature)))
    }

    /// A token that the sender knows.
    pub fn bearer(tokens: impl IntoIterator<Item = Secret>) -> Result<Self, KeyError> {
        Ok(Self::of(Scheme::Bearer(Credentials::of_tokens(tokens)?)))
    }

    /// A user and a password.
    pub fn basic<U: AsRef<str>>(users: impl IntoIterator<Item = (U, Secret)>) -> Result<Self, KeyError> {
        Ok(Self::of(Scheme::Basic(Credentials::of_users(users)?)))
    }

    fn of(scheme: Scheme) -> Self {
        Self { scheme, tolerance: Tolerance::default() }
    }

    /// How far the time of a request may be from ours, in either direction: [`DEFAULT_TOLERANCE`] unless said otherwise. For
    /// schemes that sign a time.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = Tolerance::of(tolerance);
        self
    }

    /// The first half, on the headers alone: a request that cannot be right need not send its body. `now_s` is the time of
    /// day, in seconds since 1970.
    pub fn claim(&self, headers: &HeaderMap, now_s: i64) -> Result<Claim<'_>, NotVerified> {
        let within = |timestamp: &str, name| self.tolerance.check(timestamp, name, now_s);
        match &self.scheme {
            Scheme::StandardWebhooks(keys) => standard::claim(keys, headers, within),
            Scheme::Stripe(keys) => stripe::claim(keys, headers, within),
            Scheme::Slack(keys) => slack::claim(keys, headers, within),
            Scheme::Body(keys, signature) => signature.claim(keys, headers),
            Scheme::Bearer(tokens) => credentials::bearer(tokens, headers),
            Scheme::Basic(users) => credentials::basic(users, headers),
        }
    }

    /// Both halves: whether the request comes from somebody who knows a secret.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8], now_s: i64) -> Result<(), NotVerified> {
        self.claim(headers, now_s)?.check(body)
    }

    /// The header that proves where a request comes from. It is not for the database.
    #[must_use]
    pub fn proof_header(&self) -> HeaderName {
        match &self.scheme {
            Scheme::StandardWebhooks(_) => standard::SIGNATURE,
            Scheme::Stripe(_) => stripe::SIGNATURE,
            Scheme::Slack(_) => slack::SIGNATURE,
            Scheme::Body(_, signature) => signature.header.clone(),
            Scheme::Bearer(_) | Scheme::Basic(_) => AUTHORIZATION,
        }
    }

    /// Whether the sender asks once whether the address is right, and wants its question back: Slack does.
    pub(crate) fn asks_for_an_echo(&self) -> bool {
        matches!(self.scheme, Scheme::Slack(_))
    }

    /// What a `401` asks for (`www-authenticate`).
    #[must_use]
    pub fn challenge(&self) -> &'static str {
        match &self.scheme {
            Scheme::Bearer(_) => r#"Bearer realm="oncebox""#,
            Scheme::Basic(_) => r#"Basic realm="oncebox", charset="UTF-8""#,
            _ => SIGNATURE_CHALLENGE,
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, secrets) = match &self.scheme {
            Scheme::StandardWebhooks(keys) => ("standard webhooks", keys.len()),
            Scheme::Stripe(keys) => ("stripe", keys.len()),
            Scheme::Slack(keys) => ("slack", keys.len()),
            Scheme::Body(keys, _) => ("hmac", keys.len()),
            Scheme::Bearer(tokens) => ("bearer", tokens.len()),
            Scheme::Basic(users) => ("basic", users.len()),
        };
        f.debug_struct("Verifier").field("scheme", &scheme).field("secrets", &secrets).finish_non_exhaustive()
    }
}
