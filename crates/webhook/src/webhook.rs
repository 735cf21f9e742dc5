//! The sink: its settings, and the delivery of one event.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::Full;
use oncebox_core::error::{Result, describe, reject, retry, retry_after};
use oncebox_core::outbox::{ByEvent, Deliver, OutgoingEvent};
use oncebox_core::secret::Secrets;
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::answer::{Answer, Verdict};
use crate::client::{self, Client, Failure};
use crate::error::Error;
use crate::request;
use crate::signature::{Key, signatures};

/// How long a request may take unless [`Webhook::timeout`] says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// How many requests may be under way at once unless [`Webhook::at_once`] says otherwise.
pub const DEFAULT_AT_ONCE: usize = 8;

/// Delivers each event with an HTTP request. See the [module](crate) for what is sent and what answers mean.
#[derive(Clone)]
pub struct Webhook {
    address: Address,
    keys: Vec<Key>,
    headers: HeaderMap,
    secrets: Secrets,
    timeout: Duration,
    at_once: usize,
    tls: Option<Arc<ClientConfig>>,
    client: Client,
}

impl Webhook {
    /// Delivers to this address, `http` or `https`. Credentials in it become HTTP basic authentication.
    pub fn to(url: impl AsRef<str>) -> Result<Self, Error> {
        let mut secrets = Secrets::default();
        let address = Address::parse(url.as_ref(), &mut secrets)?;
        let tls = if address.is_https() { Some(client::tls()?) } else { None };
        let client = Client::new(address.uri.clone(), tls.as_ref(), DEFAULT_TIMEOUT);
        let mut headers = HeaderMap::from_iter([(header::HOST, address.host.clone())]);
        if let Some(value) = &address.authorization {
            headers.insert(header::AUTHORIZATION, value.clone());
        }
        let (timeout, at_once) = (DEFAULT_TIMEOUT, DEFAULT_AT_ONCE);
        Ok(Self { address, keys: Vec::new(), headers, secrets, timeout, at_once, tls, client })
    }

    /// Signs every request with this secret: `whsec_` and base64, or any other text as it is. A second secret adds a second
    /// signature: how a secret is changed without a gap.
    pub fn secret(mut self, secret: impl AsRef<str>) -> Result<Self, Error> {
        self.keys.push(Key::parse(secret.as_ref())?);
        self.secrets.add(secret.as_ref());
        Ok(self)
    }

    /// Sends this header with every request; one of the same name in an event is not sent. The value is treated as a secret.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Result<Self, Error> {
        let (name, checked) = request::configured(name.as_ref(), value.as_ref())?;
        self.headers.insert(name, checked);
        self.secrets.add(value.as_ref());
        if let Some((_scheme, token)) = value.as_ref().split_once(' ') {
            self.secrets.add(token);
        }
        Ok(self)
    }

    /// How long a request may take, from the connection to the answer: [`DEFAULT_TIMEOUT`] unless said otherwise, 10 minutes at most.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.clamp(Duration::from_millis(1), MAX_TIMEOUT);
        self.client = Client::new(self.address.uri.clone(), self.tls.as_ref(), self.timeout);
        self
    }

    /// How many requests may be under way at once, each of another key and on a connection of its own:
    /// [`DEFAULT_AT_ONCE`] unless said otherwise.
    #[must_use]
    pub fn at_once(mut self, requests: usize) -> Self {
        self.at_once = requests.max(1);
        self
    }

    /// The sink. It tries an event until it is delivered or refused; [`ByEvent::retry`] sets a limit.
    #[must_use]
    pub fn into_sink(self) -> ByEvent<Self> {
        let at_once = self.at_once;
        ByEvent::new(self).at_once(at_once)
    }

    fn request(&self, event: &OutgoingEvent) -> Result<Request<Full<Bytes>>> {
        let mut headers = request::headers(event, &self.headers).ok_or_else(|| {
            let most = request::MAX_HEADERS;
            reject(format!(
                "event {} has more than {most} headers, too many for HTTP; write it with fewer",
                event.id()
            ))
        })?;
        let body = event.payload().cloned().unwrap_or_default();
        if body.is_empty() {
            // Otherwise there would be none, and receivers expect one of a POST.
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        }
        if !self.keys.is_empty() {
            let id = event.id().to_string();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let signatures = signatures(&self.keys, &id, now, &body);
            headers.insert("webhook-id", HeaderValue::try_from(id)?);
            headers.insert("webhook-timestamp", HeaderValue::from(now));
            headers.insert("webhook-signature", HeaderValue::try_from(signatures)?);
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.address.target.clone();
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// What the answer means, as an error that says what to do.
    fn judge(&self, event: &OutgoingEvent, answer: &Answer) -> Result {
        let what = format!("event {} to {}", event.id(), self.address);
        let shown = || answer.shown(|text| self.secrets.removed_from(text));
        match answer.verdict() {
            Verdict::Delivered => Ok(()),
            Verdict::Later(None) => {
                Err(retry(format!("{what}: the receiver cannot take it now, {}", shown())))
            }
            Verdict::Later(Some(delay)) => Err(retry_after(
                delay,
                format!("{what}: the receiver asks to try again in {} s, {}", delay.as_secs(), shown()),
            )),
            Verdict::Elsewhere(location) => {
                let target = self.address.shown_target(location);
                let target = target.as_deref().unwrap_or("something that is not an address");
                Err(reject(format!(
                    "{what}: the receiver answers with a redirect to {}; redirects are not followed: write that \
                     address into the configuration, then retry the event",
                    self.secrets.removed_from(target)
                )))
            }
            Verdict::Refused => Err(reject(format!(
                "{what}: the receiver refuses it, {}; fix the receiver or its configuration and retry the event, \
                 or drop it",
                shown()
            ))),
        }
    }
}

impl Deliver for Webhook {
    async fn deliver(&self, event: &OutgoingEvent) -> Result {
        let request = self.request(event)?;
        let deadline = Instant::now() + self.timeout;
        let (id, address) = (event.id(), &self.address);
        let (response, connection) = match timeout_at(deadline, self.client.send(request)).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(Failure::Connect(e))) => {
                return Err(retry(format!(
                    "event {id} to {address}: no connection, {}; see that the receiver runs and that the address is \
                     right",
                    describe(e.as_ref())
                )));
            }
            Ok(Err(Failure::Broken(e))) => {
                return Err(retry(format!(
                    "event {id} to {address}: the connection broke before the answer, {}; the receiver may have the \
                     event and gets it again with the same id",
                    describe(&e)
                )));
            }
            Err(_) => {
                return Err(retry(format!(
                    "event {id} to {address}: no answer within {:?}; the receiver may have the event and gets it \
                     again with the same id; if it needs more time, raise the timeout",
                    self.timeout
                )));
            }
        };
        let answer = Answer::read(response, deadline).await;
        self.client.keep(connection);
        self.judge(event, &answer)
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("address", &self.address.to_string())
            .field("signatures", &self.keys.len())
            .field("headers", &self.headers.keys().map(header::HeaderName::as_str).collect::<Vec<_>>())
            .field("timeout", &self.timeout)
            .field("at_once", &self.at_once)
            .finish_non_exhaustive()
    }
}
