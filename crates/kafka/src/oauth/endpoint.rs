//! One question to the endpoint: the grant of client credentials of OAuth 2.0 (RFC 6749, section 4.4).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use oncebox_core::error::describe;
use oncebox_core::printable::printable;
use oncebox_core::secret::Secrets;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use url::form_urlencoded;

use super::oidc::{Oidc, Trusted};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// More than any token needs.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// How much of what the endpoint says is passed on.
const MAX_SHOWN_CHARS: usize = 200;

/// What the endpoint gave.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(super) token: String,
    /// Milliseconds since 1970.
    pub(super) expires_at_ms: i64,
    pub(super) principal: String,
}

/// Asks for a token; says why there is none, and what to look at.
pub(super) async fn ask(oidc: &Oidc) -> Result<Granted, String> {
    let origin = oidc.origin();
    let failed = |why: String| format!("no token from {origin}: {why}");
    let answered = tokio::time::timeout(TIMEOUT, exchange(oidc)).await;
    let (status, body) =
        answered.map_err(|_| failed(format!("no answer within {} s", TIMEOUT.as_secs())))??;
    if status != StatusCode::OK {
        return Err(failed(format!("{status}{}{}", said(oidc, &body), what_to_check(status))));
    }
    granted(oidc, &body, now_ms()).map_err(failed)
}

async fn exchange(oidc: &Oidc) -> Result<(StatusCode, Bytes), String> {
    let origin = oidc.origin();
    let failed = |why: String| format!("no token from {origin}: {why}");
    let connector = connector(oidc).map_err(failed)?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
    let request = request(oidc).map_err(|e| failed(e.to_string()))?;
    let answer: Response<_> = client
        .request(request)
        .await
        .map_err(|e| failed(format!("{}. Check sasl.oauthbearer.token.endpoint.url", describe(&e))))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    let body = body.map_err(|e| failed(format!("its answer broke off: {e}")))?;
    Ok((status, body.to_bytes()))
}

fn request(oidc: &Oidc) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if let Some(scope) = &oidc.scope {
        form.append_pair("scope", scope);
    }
    let who = BASE64_STANDARD.encode(format!("{}:{}", oidc.client_id, oidc.client_secret));
    Request::post(oidc.endpoint.as_str())
        .header(header::AUTHORIZATION, format!("Basic {who}"))
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Full::from(form.finish()))
}

/// Made anew for each question, so that certificates which were replaced meanwhile are read.
fn connector(oidc: &Oidc) -> Result<HttpsConnector<HttpConnector>, String> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(TIMEOUT));
    // Named here, and not taken from the process: another crate may bring a second provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.map_err(|e| e.to_string())?;
    let tls = match &oidc.trusted {
        Trusted::System if oidc.endpoint.scheme() == "http" => {
            tls.with_root_certificates(RootCertStore::empty())
        }
        Trusted::System => tls.with_native_roots().map_err(|e| {
            format!(
                "{e}. Install the package ca-certificates, or set https.ca.location to a file of certificates"
            )
        })?,
        Trusted::File(file) => {
            let pem =
                std::fs::read(file).map_err(|e| format!("https.ca.location {file} cannot be read: {e}"))?;
            tls.with_root_certificates(roots(&pem).map_err(|e| format!("https.ca.location {file}: {e}"))?)
        }
        Trusted::Pem(pem) => {
            tls.with_root_certificates(roots(pem.as_bytes()).map_err(|e| format!("https.ca.pem: {e}"))?)
        }
    };
    Ok(HttpsConnector::from((tcp, tls.with_no_client_auth())))
}

fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|e| format!("this is no certificate in PEM: {e}"))?;
        roots.add(certificate).map_err(|e| e.to_string())?;
    }
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(roots) }
}

/// The words of an OAuth error, in one short line and without our secrets.
fn said(oidc: &Oidc, body: &[u8]) -> String {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return String::new() };
    let words: Vec<&str> =
        ["error", "error_description"].iter().filter_map(|name| answer[*name].as_str()).collect();
    if words.is_empty() {
        return String::new();
    }
    let secrets: Secrets = [oidc.client_secret.as_str()].into_iter().collect();
    let text = secrets.removed_from(&words.join(": "));
    format!(" ({})", printable(&text).chars().take(MAX_SHOWN_CHARS).collect::<String>())
}

fn what_to_check(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ". Check sasl.oauthbearer.client.id, client.secret and scope"
        }
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => "",
        _ => ". Check sasl.oauthbearer.token.endpoint.url",
    }
}

/// Reads the answer: the token, when it expires and whom it is about. Most tokens say it themselves (JWT); of others the answer
/// must say how long they last.
fn granted(oidc: &Oidc, body: &[u8], now_ms: i64) -> Result<Granted, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| "its answer is no JSON".to_owned())?;
    let token = answer["access_token"].as_str().ok_or("its answer has no access_token")?;
    let claims = claims(token).unwrap_or(Value::Null);
    let said_by_token = claims["exp"].as_f64().map(|seconds| seconds * 1000.0);
    let said_by_answer = answer["expires_in"].as_f64().map(|seconds| seconds.mul_add(1000.0, now_ms as f64));
    let expires = said_by_token.or(said_by_answer);
    let expires =
        expires.ok_or("its token does not say when it expires, and the answer has no expires_in")?;
    let expires_at_ms = expires as i64;
    if expires_at_ms <= now_ms {
        return Err("its token has expired already: compare the clocks of this machine and of the endpoint"
            .to_owned());
    }
    let principal = claims["sub"].as_str().unwrap_or(&oidc.client_id).to_owned();
    Ok(Granted { token: token.to_owned(), expires_at_ms, principal })
}

/// The middle of a JWT. Nobody checks its signature here: that is for the broker.
fn claims(token: &str) -> Option<Value> {
    let middle = token.split('.').nth(1)?;
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(middle.trim_end_matches('=')).ok()?).ok()
}

pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn oidc() -> Oidc {
        let properties = [
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.oauthbearer.token.endpoint.url", "https://me:pw@idp.example.com/token?x=y"),
            ("sasl.oauthbearer.client.id", "oncebox"),
            ("sasl.oauthbearer.client.secret", "canary"),
        ];
        let properties: BTreeMap<_, _> =
            properties.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Oidc::of(&properties).expect("all that is needed")
    }

    fn jwt(claims: &str) -> String {
        format!("e30.{}.signature", BASE64_URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_token_says_when_it_expires_and_whom_it_is_about() {
        let body = format!(r#"{{"access_token":"{}","expires_in":5}}"#, jwt(r#"{"sub":"erp","exp":1000}"#));
        let granted = granted(&oidc(), body.as_bytes(), 1_000).expect("a token");
        assert_eq!((granted.expires_at_ms, granted.principal.as_str()), (1_000_000, "erp"));
    }

    #[test]
    fn of_other_tokens_the_answer_says_it() {
        let granted =
            granted(&oidc(), br#"{"access_token":"opaque","expires_in":5}"#, 1_000).expect("a token");
        assert_eq!((granted.expires_at_ms, granted.principal.as_str()), (6_000, "oncebox"));
    }

    #[test]
    fn what_is_no_token_is_told() {
        for (body, word) in [
            ("<html>", "no JSON"),
            ("{}", "no access_token"),
            (r#"{"access_token":"opaque"}"#, "when it expires"),
            (&format!(r#"{{"access_token":"{}"}}"#, jwt(r#"{"exp":1}"#)), "expired already"),
        ] {
            let Err(error) = granted(&oidc(), body.as_bytes(), 5_000) else { panic!("{body} is taken") };
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn secrets_of_ours_do_not_come_back() {
        let body = br#"{"error":"invalid_client","error_description":"no canary\u001b[31m here"}"#;
        let text = said(&oidc(), body);
        assert!(
            text.contains("invalid_client") && !text.contains("canary") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert_eq!(oidc().origin(), "https://idp.example.com");
        assert_eq!(format!("{:?}", oidc()), "Oidc { endpoint: \"https://idp.example.com\", .. }");
    }
}
