//! What a sender gets whose message is not applied: a problem as RFC 9457 has it.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use oncebox_core::printable::printable;
use serde::Serialize;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The longest explanation. A reason may come from a handler, and hold anything.
const MAX_DETAIL_CHARS: usize = 1000;

/// Why a request was not applied, as its sender gets to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
    events: Vec<EventProblem>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What is wrong with one event of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct EventProblem {
    /// Which one, from 0.
    pub(crate) index: usize,
    pub(crate) detail: String,
}

/// The members of the document.
#[derive(Serialize)]
struct Document<'p> {
    title: &'p str,
    status: u16,
    detail: &'p str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    events: &'p [EventProblem],
}

impl Problem {
    pub(crate) fn new(status: StatusCode, title: &'static str, detail: impl AsRef<str>) -> Self {
        Self { status, title, detail: shown(detail.as_ref()), events: Vec::new(), headers: Vec::new() }
    }

    /// Come again, after this time.
    pub(crate) fn retry_after(self, delay: Duration) -> Self {
        // A second at least: who is told to come at once asks without a pause.
        self.header(RETRY_AFTER, HeaderValue::from(delay.as_secs().max(1)))
    }

    /// What a sender must show to be let in.
    pub(crate) fn challenge(self, challenge: &'static str) -> Self {
        self.header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    /// The methods that there are.
    pub(crate) fn allow(self, methods: &'static str) -> Self {
        self.header(ALLOW, HeaderValue::from_static(methods))
    }

    /// The rest of the request is not waited for.
    pub(crate) fn close(self) -> Self {
        self.header(CONNECTION, HeaderValue::from_static("close"))
    }

    /// Which events of a batch it is about.
    pub(crate) fn events(mut self, events: Vec<EventProblem>) -> Self {
        self.events = events;
        self
    }

    fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// A reason of somebody else, fit to be shown.
pub(crate) fn shown(detail: &str) -> String {
    let mut text: String = printable(detail).chars().take(MAX_DETAIL_CHARS + 1).collect();
    if let Some((end, _)) = text.char_indices().nth(MAX_DETAIL_CHARS) {
        text.replace_range(end.., "…");
    }
    text
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            events: &self.events,
        };
        // Texts and numbers always are JSON.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        response.headers_mut().extend(self.headers);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_printable_and_short() {
        assert_eq!(shown("a\u{1b}[2J\r\nb"), "a\\u{1b}[2J\\r\\nb");
        assert_eq!(shown(&"ü".repeat(5_000)).chars().count(), MAX_DETAIL_CHARS + 1);
    }

    #[test]
    fn who_is_told_to_come_again_waits_at_least_a_second() {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "later", "later");
        for (delay, seconds) in [(0, "1"), (999, "1"), (5_400, "5")] {
            let response = problem.clone().retry_after(Duration::from_millis(delay)).into_response();
            assert_eq!(response.headers()[RETRY_AFTER], seconds);
        }
    }
}
