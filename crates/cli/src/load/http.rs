//! An inbox that takes requests.

use std::collections::BTreeMap;

use axum::Router;
use axum::http::StatusCode;
use oncebox_config::{HandshakeConfig, HttpMode, SecretsConfig, VerifyConfig, VerifyScheme};
use oncebox_core::error::BoxError;
use oncebox_core::secret::Secret;
use oncebox_http::verify::{Access, BodySignature, Encoding, Verifier};
use oncebox_http::{Handshake, HttpInbox, HttpSource, Origins, Reply};

/// The two halves of an inbox that takes requests, or what is wrong with it.
pub(crate) fn http_inbox(config: &oncebox_config::HttpInbox) -> Result<(Router, HttpSource), BoxError> {
    let mut limits = oncebox_http::Limits::default();
    limits.body_bytes = config.max_body;
    limits.answer_within = config.timeout;
    limits.copy_within = limits.copy_within.min(config.timeout);
    let mut reply = Reply::new(StatusCode::from_u16(config.status)?)?;
    if !config.body.is_empty() {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&config.body).is_ok();
        let content_type = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        reply = reply.body(content_type, config.body.clone())?;
    }
    let path = config.path.parse()?;
    let inbox = match config.mode {
        HttpMode::Apply => HttpInbox::apply(path),
        HttpMode::Accept => HttpInbox::accept(path),
    };
    let mut inbox = inbox.limits(limits).reply(reply).compare_bodies(config.compare_body);
    if let Some(key) = &config.key {
        inbox = inbox.key(key.clone());
    }
    if let Some(verify) = &config.verify {
        inbox = inbox.access(access(verify)?);
    }
    if let Some(HandshakeConfig { origins, rate }) = &config.handshake {
        let any = origins.iter().any(|origin| origin == "*");
        let origins = if any { Origins::Any } else { Origins::Only(origins.clone()) };
        inbox = inbox.handshake(Handshake { origins, rate: *rate });
    }
    Ok(inbox.open()?)
}

fn access(config: &VerifyConfig) -> Result<Access, BoxError> {
    match &config.secrets {
        SecretsConfig::Same(secrets) => Ok(Access::Verified(verifier(config, secrets)?)),
        SecretsConfig::Each { parameter, secrets } => {
            let mut verifiers = BTreeMap::new();
            for (value, secrets) in secrets {
                let verifier = verifier(config, secrets).map_err(|e| format!("secrets of {value}: {e}"))?;
                verifiers.insert(value.clone(), verifier);
            }
            Ok(Access::ByParameter { parameter: parameter.clone(), verifiers })
        }
    }
}

fn verifier(config: &VerifyConfig, secrets: &[Secret]) -> Result<Verifier, BoxError> {
    let secrets = secrets.iter().cloned();
    let verifier = match &config.scheme {
        VerifyScheme::Standard => Verifier::standard_webhooks(secrets),
        VerifyScheme::Stripe => Verifier::stripe(secrets),
        VerifyScheme::Github => Verifier::github(secrets),
        VerifyScheme::Shopify => Verifier::shopify(secrets),
        VerifyScheme::Slack => Verifier::slack(secrets),
        VerifyScheme::Bearer => Verifier::bearer(secrets),
        VerifyScheme::Basic { user } => Verifier::basic(secrets.map(|secret| (user, secret))),
        VerifyScheme::Hmac { header, base64, prefix } => {
            let encoding = if *base64 { Encoding::Base64 } else { Encoding::Hex };
            let signature = BodySignature { header: header.parse()?, encoding, prefix: prefix.clone() };
            Verifier::hmac(secrets, signature)
        }
    }?;
    Ok(match config.tolerance {
        Some(tolerance) => verifier.tolerance(tolerance),
        None => verifier,
    })
}
