//! The sink: its settings, and the delivery of one event.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use oncebox_core::error::{Result, describe, reject};
use oncebox_core::inbox::RetryPolicy;
use oncebox_core::outbox::{ByEvent, Deliver, Delivery, KEEP_TRYING, OutgoingEvent, Standing};
use oncebox_core::secret::Secrets;
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::answer::{Answer, Verdict};
use crate::client::{self, Client, Failure};
use crate::error::Error;
use crate::failure::{Cause, Failed};
use crate::gate::Gate;
use crate::request;
use crate::signature::{Key, signatures};

/// How long a request may take unless [`Webhook::timeout`] says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// How many requests may be under way at once unless [`Webhook::at_once`] says otherwise.
pub const DEFAULT_AT_ONCE: usize = 8;
/// The statuses that say that this very event is wrong, unless [`Webhook::park_on`] says otherwise.
pub const DEFAULT_PARK_ON: [u16; 5] = [400, 410, 413, 415, 422];

/// Delivers each event with an HTTP request. See the [module](crate) for what is sent and what answers mean.
#[derive(Clone)]
pub struct Webhook {
    address: Address,
    keys: Vec<Key>,
    headers: HeaderMap,
    secrets: Secrets,
    timeout: Duration,
    at_once: usize,
    park_on: Vec<StatusCode>,
    retry: RetryPolicy,
    tls: Option<Arc<ClientConfig>>,
    client: Client,
    gate: Gate,
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
        let gate = Gate::new(address.to_string(), KEEP_TRYING.backoff, DEFAULT_TIMEOUT);
        let webhook = Self {
            address,
            keys: Vec::new(),
            headers,
            secrets,
            timeout: DEFAULT_TIMEOUT,
            at_once: DEFAULT_AT_ONCE,
            park_on: Vec::new(),
            retry: KEEP_TRYING,
            tls,
            client,
            gate,
        };
        webhook.park_on(DEFAULT_PARK_ON)
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
        self.gated()
    }

    /// The answers that say that this very event is wrong, by their status: it is parked. After any other answer than 2xx it is tried
    /// again. [`DEFAULT_PARK_ON`] unless said otherwise; none is fine too.
    pub fn park_on(mut self, statuses: impl IntoIterator<Item = u16>) -> Result<Self, Error> {
        let status = |status: u16| match StatusCode::from_u16(status) {
            Ok(known) if (300..600).contains(&status) => Ok(known),
            _ => Err(Error::Status(status)),
        };
        self.park_on = statuses.into_iter().map(status).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// How often a failing event is tried, and how long to wait in between; a receiver in trouble as a whole is tried at the same pace.
    /// Without it, until it is delivered.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self.gated()
    }

    fn gated(mut self) -> Self {
        self.gate = Gate::new(self.address.to_string(), self.retry.backoff, self.timeout);
        self
    }

    /// How many requests may be under way at once, each of another key and on a connection of its own:
    /// [`DEFAULT_AT_ONCE`] unless said otherwise.
    #[must_use]
    pub fn at_once(mut self, requests: usize) -> Self {
        self.at_once = requests.max(1);
        self
    }

    /// The sink. It tries an event until it is delivered or refused; [`Webhook::retry`] sets a limit.
    #[must_use]
    pub fn into_sink(self) -> ByEvent<Self> {
        let (at_once, retry) = (self.at_once, self.retry);
        ByEvent::new(self).at_once(at_once).retry(retry)
    }

    /// The request; the error says why there can be none.
    fn request(&self, event: &OutgoingEvent) -> Result<Request<Full<Bytes>>, String> {
        let unfit = |e: header::InvalidHeaderValue| format!("event {}: {e}", event.id());
        let mut headers = request::headers(event, &self.headers).ok_or_else(|| {
            let most = request::MAX_HEADERS;
            format!(
                "event {} has more than {most} headers, too many for HTTP; write it with fewer",
                event.id()
            )
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
            headers.insert("webhook-id", HeaderValue::try_from(id).map_err(unfit)?);
            headers.insert("webhook-timestamp", HeaderValue::from(now));
            headers.insert("webhook-signature", HeaderValue::try_from(signatures).map_err(unfit)?);
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.address.target.clone();
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// What the answer means, as an error that says what to do.
    fn judge(&self, event: &OutgoingEvent, answer: &Answer) -> Result<(), Failed> {
        let status = answer.status();
        let (cause, mut what) = match answer.verdict(&self.park_on) {
            Verdict::Delivered => return Ok(()),
            Verdict::Refused => (
                Cause::Refused,
                format!(
                    "the receiver refuses it, {status}; fix the receiver or its configuration and retry the event, or drop it"
                ),
            ),
            Verdict::Later(Some(delay)) => {
                let what = format!("the receiver asks to try again in {} s, {status}", delay.as_secs());
                (Cause::Later(Some(delay)), what)
            }
            Verdict::Later(None) => (Cause::Later(None), self.not_now(answer)),
        };
        let text = answer.text(|text| self.secrets.removed_from(text));
        if !text.is_empty() {
            // On a line of its own, which the log leaves out: it may quote the event.
            what.push_str("\nit said: ");
            what.push_str(&text);
        }
        Err(self.failure(event, cause, &format!("answers {status}"), &what))
    }

    fn not_now(&self, answer: &Answer) -> String {
        if let Some(location) = answer.location() {
            let target = self.address.shown_target(location);
            let target = target.as_deref().unwrap_or("something that is not an address");
            return format!(
                "the receiver answers with a redirect to {}; redirects are not followed: write that address into the \
                 configuration",
                self.secrets.removed_from(target)
            );
        }
        match answer.status() {
            status
            @ (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS) => {
                format!("the receiver cannot take it now, {status}")
            }
            status if status.is_server_error() => format!("the receiver cannot take it now, {status}"),
            status => format!("the receiver does not take it, {status}; see to its address and credentials"),
        }
    }

    /// `does` is for everybody, `what` for who looks at the event.
    fn failure(&self, event: &OutgoingEvent, cause: Cause, does: &str, what: &str) -> Failed {
        let (id, address) = (event.id(), &self.address);
        Failed {
            error: format!("event {id} to {address}: {what}"),
            reason: format!("{address} {does}").into(),
            cause,
        }
    }

    /// Sends it, once.
    async fn send(&self, event: &OutgoingEvent, request: Request<Full<Bytes>>) -> Result<(), Failed> {
        let deadline = Instant::now() + self.timeout;
        let later = Cause::Later(None);
        let (response, connection) = match timeout_at(deadline, self.client.send(request)).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(Failure::Connect(e))) => {
                let why = describe(e.as_ref());
                let what =
                    format!("no connection, {why}; see that the receiver runs and that the address is right");
                return Err(self.failure(event, later, &format!("cannot be reached: {why}"), &what));
            }
            Ok(Err(Failure::Broken(e))) => {
                let what = format!(
                    "the connection broke before the answer, {}; the receiver may have the event and gets it again \
                     with the same id",
                    describe(&e)
                );
                return Err(self.failure(event, later, "ends connections before it answers", &what));
            }
            Err(_) => {
                let does = format!("gives no answer within {:?}", self.timeout);
                let what = format!(
                    "no answer within {:?}; the receiver may have the event and gets it again with the same id; if it \
                     needs more time, raise the timeout",
                    self.timeout
                );
                return Err(self.failure(event, Cause::Silent, &does, &what));
            }
        };
        let answer = Answer::read(response, deadline).await;
        self.client.keep(connection);
        self.judge(event, &answer)
    }
}

impl Deliver for Webhook {
    /// Sends it, whatever became of others.
    async fn deliver(&self, event: &OutgoingEvent) -> Result {
        let request = self.request(event).map_err(reject)?;
        self.send(event, request).await.map_err(Failed::into_error)
    }

    /// Sends it if the receiver takes events.
    async fn attempt(&self, event: &OutgoingEvent) -> Delivery {
        let request = match self.request(event) {
            Ok(request) => request,
            Err(error) => return Delivery::Reject { error },
        };
        let pass = match self.gate.enter(event) {
            Ok(pass) => pass,
            Err(delivery) => return delivery,
        };
        match self.send(event, request).await {
            Ok(()) => pass.delivered(),
            Err(failed) => pass.failed(failed),
        }
    }

    fn standing(&self) -> Standing {
        self.gate.standing()
    }

    fn system(&self) -> Option<&'static str> {
        Some("http")
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
            .field("park_on", &self.park_on)
            .finish_non_exhaustive()
    }
}
