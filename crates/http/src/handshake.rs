//! The handshake of CloudEvents: a sender asks with `OPTIONS` whether it may send.

use std::num::NonZeroU32;

use axum::body::Body;
use axum::response::Response;
use http::HeaderMap;
use http::header::{ALLOW, HeaderName, HeaderValue};

const REQUEST_ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const ALLOWED_RATE: HeaderName = HeaderName::from_static("webhook-allowed-rate");

/// Who may send events here, for senders that ask first, as Azure Event Grid does. It lets nobody in: that is for
/// [`Access`](crate::verify::Access).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// Who may.
    pub origins: Origins,
    /// How many requests per minute; `None` for as many as they like.
    pub rate: Option<NonZeroU32>,
}

/// The senders that a [`Handshake`] says yes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// All that ask.
    Any,
    /// These names, such as `eventgrid.azure.net`.
    Only(Vec<String>),
}

impl Handshake {
    /// The permission is in the headers; the status says nothing.
    pub(crate) fn answer(&self, headers: &HeaderMap) -> Response {
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("OPTIONS, POST"));
        if let Some(origin) = headers.get(REQUEST_ORIGIN).and_then(|origin| self.allowed(origin)) {
            let any = HeaderValue::from_static("*");
            let rate = self.rate.map_or(any, |rate| HeaderValue::from(rate.get()));
            response.headers_mut().insert(ALLOWED_ORIGIN, origin);
            response.headers_mut().insert(ALLOWED_RATE, rate);
        }
        response
    }

    fn allowed(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        match &self.origins {
            Origins::Any => Some(HeaderValue::from_static("*")),
            Origins::Only(names) => {
                let asked = origin.to_str().ok()?;
                names.iter().any(|name| name.eq_ignore_ascii_case(asked)).then(|| origin.clone())
            }
        }
    }
}
