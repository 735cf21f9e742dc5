//! What a sender gets whose message is applied.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};

/// Says that the message was applied before: the answer is that of the first time.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Says that the message was not applied, because the inbox does not want such messages.
const FILTERED: HeaderName = HeaderName::from_static("oncebox-filtered");

/// What a sender gets whose message is applied, now or before: the same each time. Default: 204 without a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    status: StatusCode,
    body: Option<(HeaderValue, Bytes)>,
}

/// Why a reply cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// Another status would say something else.
    #[error("the status of a message that is applied is 200, 201 or 204, not {0}")]
    Status(StatusCode),
    /// 204 means that there is none.
    #[error("a reply with status 204 has no body; choose 200 or 201")]
    BodyWithoutContent,
    /// Not the value of a header.
    #[error("the content type of the reply is not printable ASCII")]
    ContentType,
}

impl Reply {
    /// 200, 201 or 204, without a body.
    ///
    /// ```
    /// use http::StatusCode;
    /// use oncebox::http::Reply;
    ///
    /// let reply = Reply::new(StatusCode::CREATED)?.body("application/json", r#"{"ok":true}"#)?;
    /// assert!(Reply::new(StatusCode::NO_CONTENT)?.body("text/plain", "ok").is_err());
    /// # let _ = reply;
    /// # Ok::<(), oncebox::http::ReplyError>(())
    /// ```
    pub fn new(status: StatusCode) -> Result<Self, ReplyError> {
        match status {
            StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => Ok(Self { status, body: None }),
            other => Err(ReplyError::Status(other)),
        }
    }

    /// With this body.
    pub fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Result<Self, ReplyError> {
        if self.status == StatusCode::NO_CONTENT {
            return Err(ReplyError::BodyWithoutContent);
        }
        let content_type = content_type.parse().map_err(|_| ReplyError::ContentType)?;
        self.body = Some((content_type, body.into()));
        Ok(self)
    }

    /// The message is stored, and not applied yet.
    pub(crate) fn accepted(&self) -> Response {
        let mut response = self.response(false);
        *response.status_mut() = StatusCode::ACCEPTED;
        response
    }

    /// Nothing of the request is wanted: it is answered as if it had been applied, for nobody has to send it again.
    pub(crate) fn filtered(&self) -> Response {
        let mut response = self.response(false);
        response.headers_mut().insert(FILTERED, HeaderValue::from_static("true"));
        response
    }

    pub(crate) fn response(&self, replayed: bool) -> Response {
        let mut response = match &self.body {
            None => Response::new(Body::empty()),
            Some((content_type, body)) => {
                let mut response = Response::new(Body::from(body.clone()));
                response.headers_mut().insert(CONTENT_TYPE, content_type.clone());
                response
            }
        };
        *response.status_mut() = self.status;
        if replayed {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}

impl Default for Reply {
    fn default() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: None }
    }
}
