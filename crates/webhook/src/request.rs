//! The headers of the request that an event becomes.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use oncebox_core::outbox::OutgoingEvent;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::error::Error;

/// The most headers of an event that are passed on. Most receivers take about a hundred.
pub(crate) const MAX_HEADERS: usize = 1000;

const OCTET_STREAM: HeaderValue = HeaderValue::from_static("application/octet-stream");
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("oncebox/", env!("CARGO_PKG_VERSION")));

/// These belong to the connection: nobody may set them.
const CONNECTION_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// These the sink writes itself, from what the event is.
const OWN_HEADERS: [&str; 4] = ["idempotency-key", "oncebox-id", "oncebox-key", "oncebox-topic"];
const OWN_PREFIXES: [&str; 2] = ["ce-", "webhook-"];

/// These speak for the sender: a receiver or a proxy may trust them. Only the configuration may set them.
const TRUSTED_HEADERS: [&str; 9] =
    ["authorization", "cookie", "forwarded", "host", "origin", "referer", "user-agent", "via", "x-real-ip"];
const TRUSTED_PREFIXES: [&str; 3] = ["proxy-", "sec-", "x-forwarded-"];

/// What CloudEvents wants to be percent-encoded in a header, besides all that is not ASCII.
const CLOUDEVENTS_ESCAPES: AsciiSet = CONTROLS.add(b' ').add(b'"').add(b'%');

/// A header of the configuration, checked.
pub(crate) fn configured(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Error> {
    let wrong = |why| Error::Header { name: name.to_owned(), why };
    let name = name.parse::<HeaderName>().map_err(|_| wrong("this is not the name of an HTTP header"))?;
    if CONNECTION_HEADERS.contains(&name.as_str()) {
        return Err(wrong("it belongs to the connection; leave it out"));
    }
    if is_own(&name) || name == header::CONTENT_TYPE {
        return Err(wrong("it is made from the event; leave it out"));
    }
    let mut value = value.parse::<HeaderValue>().map_err(|_| wrong("its value is not printable ASCII"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// What an event says in headers; the configured ones win. The signature is added later. `None`: too many headers.
pub(crate) fn headers(event: &OutgoingEvent, configured: &HeaderMap) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut fits = true;
    event.visit_headers(|name, value| {
        let passed = value.and_then(|value| passed_on(name, value));
        fits &= headers.len() < MAX_HEADERS;
        if let Some((name, value)) = passed.filter(|_| fits) {
            headers.insert(name, value);
        }
    });
    if !fits {
        return None;
    }
    if event.payload().is_none() {
        headers.remove(header::CONTENT_TYPE);
    } else {
        headers.entry(header::CONTENT_TYPE).or_insert(OCTET_STREAM);
    }
    let id = event.id().to_string();
    let own = [
        ("idempotency-key", Some(id.as_bytes())),
        ("oncebox-id", Some(id.as_bytes())),
        ("oncebox-topic", Some(event.topic().as_bytes())),
        ("oncebox-key", event.key()),
    ];
    for (name, value) in own {
        if let Some(value) = value.and_then(printable) {
            headers.insert(name, value);
        }
    }
    headers.insert(header::USER_AGENT, USER_AGENT);
    for (name, value) in configured {
        headers.insert(name, value.clone());
    }
    Some(headers)
}

/// The header as HTTP carries it, if an event may set it.
fn passed_on(name: &str, value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    if let Some(attribute) = name.strip_prefix("ce_") {
        let name = HeaderName::try_from(format!("ce-{attribute}")).ok()?;
        let value = HeaderValue::try_from(percent_encode(value, &CLOUDEVENTS_ESCAPES).to_string()).ok()?;
        return Some((name, value));
    }
    let name = name.parse::<HeaderName>().ok()?;
    let kept_out = CONNECTION_HEADERS.contains(&name.as_str())
        || is_own(&name)
        || TRUSTED_HEADERS.contains(&name.as_str())
        || TRUSTED_PREFIXES.iter().any(|family| name.as_str().starts_with(family));
    if kept_out {
        return None;
    }
    Some((name, printable(value)?))
}

fn is_own(name: &HeaderName) -> bool {
    OWN_HEADERS.contains(&name.as_str())
        || OWN_PREFIXES.iter().any(|family| name.as_str().starts_with(family))
}

/// Printable ASCII arrives as it was sent; spaces around it would not.
fn printable(value: &[u8]) -> Option<HeaderValue> {
    let fits = value.trim_ascii() == value && value.iter().all(|b| matches!(b, b' '..=b'~'));
    if fits { HeaderValue::from_bytes(value).ok() } else { None }
}
