//! Slack asks once whether an address is right, and wants its question back.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;

/// The question is short; anything longer is an event.
const MAX_QUESTION_BYTES: usize = 4 * 1024;

#[derive(Deserialize)]
struct Question<'q> {
    #[serde(rename = "type")]
    kind: &'q str,
    challenge: &'q str,
}

/// The answer, if the body of a verified request is such a question. It becomes no message.
pub(crate) fn echo(body: &[u8]) -> Option<Response> {
    if body.len() > MAX_QUESTION_BYTES {
        return None;
    }
    let question: Question<'_> = serde_json::from_slice(body).ok()?;
    if question.kind != "url_verification" {
        return None;
    }
    let mut response = Response::new(Body::from(question.challenge.to_owned()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Some(response)
}
