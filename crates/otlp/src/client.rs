//! One request to the collector, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use oncebox_core::error::describe_whole;
use rustls::{ClientConfig, RootCertStore};
use url::Url;

use crate::Settings;
use crate::encode::rejected;

const PATH: &str = "/v1/traces";
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The longest pause that a collector can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why spans cannot be sent to such a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError(String);

impl std::fmt::Display for AddressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The collector has the spans, but for so many.
    Taken { rejected: u64 },
    /// It is away or in trouble: worth another try, after this pause if it has asked for one.
    Later { reason: String, pause: Option<Duration> },
    /// It will never take them.
    Refused(String),
}

pub(crate) struct Client {
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    headers: HeaderMap,
    /// Scheme, host and port: as much as is ever shown.
    origin: String,
}

impl Client {
    pub(crate) fn new(settings: &Settings) -> Result<Self, AddressError> {
        let mut url = Url::parse(&settings.collector).map_err(|e| AddressError(e.to_string()))?;
        if !url.path().ends_with(PATH) {
            let path = format!("{}{PATH}", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("oncebox"));
        for (name, value) in &settings.headers {
            let wrong = || AddressError(format!("the header {name} cannot be sent"));
            let name: HeaderName = name.parse().map_err(|_| wrong())?;
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let http = HttpClient::builder(TokioExecutor::new()).build(connector(url.scheme() == "https")?);
        Ok(Self { http, origin: url.origin().ascii_serialization(), url: url.into(), headers })
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Sends it, once. Ends within a bounded time.
    pub(crate) async fn send(&self, body: Bytes) -> Sent {
        match tokio::time::timeout(ANSWER_LIMIT, self.exchange(body)).await {
            Ok(sent) => sent,
            Err(_) => later(format!("no answer within {} s", ANSWER_LIMIT.as_secs())),
        }
    }

    async fn exchange(&self, body: Bytes) -> Sent {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = http::Method::POST;
        *request.headers_mut() = self.headers.clone();
        match self.url.parse() {
            Ok(uri) => *request.uri_mut() = uri,
            Err(e) => return Sent::Refused(format!("the address cannot be used: {e}")),
        }
        let answer = match self.http.request(request).await {
            Ok(answer) => answer,
            Err(e) => return later(describe_whole(&e)),
        };
        let (parts, body) = answer.into_parts();
        if !parts.status.is_success() {
            return judge(parts.status, &parts.headers);
        }
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        Sent::Taken { rejected: body.map_or(0, |body| rejected(&body.to_bytes())) }
    }
}

fn later(reason: String) -> Sent {
    Sent::Later { reason, pause: None }
}

/// The specification names the answers after which another try makes sense. `500` is not among them, and yet what a collector in
/// trouble often says.
fn judge(status: StatusCode, headers: &HeaderMap) -> Sent {
    let reason = format!("it answered {status}");
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return Sent::Refused(reason);
    }
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Sent::Later { reason, pause: seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST_PAUSE)) }
}

fn connector(is_https: bool) -> Result<HttpsConnector<HttpConnector>, AddressError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    // Named here, and not taken from the process: another crate may bring a second provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let wrong = |e: String| AddressError(format!("TLS cannot be used: {e}"));
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(e.to_string()))?;
    let tls = if is_https {
        tls.with_native_roots().map_err(|e| wrong(e.to_string()))?
    } else {
        tls.with_root_certificates(RootCertStore::empty())
    };
    Ok(HttpsConnector::from((tcp, tls.with_no_client_auth())))
}

#[cfg(test)]
mod tests {
    use oncebox_core::secret::Secret;

    use super::*;

    fn client(collector: &str, header: &str) -> Result<Client, AddressError> {
        Client::new(&Settings {
            collector: collector.to_owned(),
            headers: vec![(header.to_owned(), Secret::new("canary"))],
            service_name: "oncebox".to_owned(),
            service_version: "0",
        })
    }

    #[test]
    fn the_path_is_added_unless_it_is_there() {
        for (collector, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("http://host/otlp/", "http://host/otlp/v1/traces"),
            ("http://host/otlp/v1/traces", "http://host/otlp/v1/traces"),
        ] {
            assert_eq!(client(collector, "x-key").unwrap().url, url);
        }
        let wrong = client("http://host", "x key").err().unwrap();
        assert_eq!(wrong.to_string(), "the header x key cannot be sent");
    }

    #[test]
    fn who_is_in_trouble_is_asked_again() {
        let mut headers = HeaderMap::new();
        for (status, again) in
            [(400, false), (401, false), (404, false), (429, true), (500, true), (503, true)]
        {
            let sent = judge(StatusCode::from_u16(status).unwrap(), &headers);
            assert_eq!(matches!(sent, Sent::Later { pause: None, .. }), again, "{status}");
        }
        for (said, pause) in [("7", Some(7)), ("9999", Some(30)), ("soon", None)] {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(said));
            let Sent::Later { pause: found, .. } = judge(StatusCode::SERVICE_UNAVAILABLE, &headers) else {
                unreachable!()
            };
            assert_eq!(found, pause.map(Duration::from_secs));
        }
    }
}
