//! What an answer means for the event.

use std::time::{Duration, SystemTime};

use http::response::Parts;
use http::{Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::text::one_line;

/// How much of an answer is read. A connection whose answer is longer is not used again.
const MAX_READ_BYTES: usize = 8 * 1024;
/// How long the rest of an answer may take once its status is known.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// How much of an answer is shown.
const MAX_SHOWN_CHARS: usize = 200;
/// No receiver can hold an event back for longer.
const MAX_DELAY: Duration = Duration::from_secs(60 * 60);

/// What the receiver answered: its status decides, its text is for people.
#[derive(Debug)]
pub(crate) struct Answer {
    head: Parts,
    body: Vec<u8>,
}

/// What follows from an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Delivered,
    /// This very event is wrong.
    Refused,
    /// Anything else may pass: the receiver may have said when.
    Later(Option<Duration>),
}

impl Answer {
    /// Reads the beginning of the answer, as far as it comes in time. The status is known already, so that an answer that
    /// breaks off or never ends changes nothing.
    pub(crate) async fn read(response: Response<Incoming>, deadline: Instant) -> Self {
        let (head, mut rest) = response.into_parts();
        let deadline = deadline.min(Instant::now() + BODY_TIMEOUT);
        let mut body = Vec::new();
        while body.len() < MAX_READ_BYTES
            && let Ok(Some(Ok(frame))) = timeout_at(deadline, rest.frame()).await
        {
            if let Some(data) = frame.data_ref() {
                body.extend_from_slice(&data[..data.len().min(MAX_READ_BYTES - body.len())]);
            }
        }
        Self { head, body }
    }

    /// `park_on` are the statuses that say that an event is wrong.
    pub(crate) fn verdict(&self, park_on: &[StatusCode]) -> Verdict {
        match self.head.status {
            status if status.is_success() => Verdict::Delivered,
            status if park_on.contains(&status) => Verdict::Refused,
            _ => Verdict::Later(self.retry_after()),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Where it points to, if it is a redirect.
    pub(crate) fn location(&self) -> Option<&str> {
        self.header(header::LOCATION).filter(|_| self.head.status.is_redirection())
    }

    /// The beginning of the text, cleaned.
    pub(crate) fn text(&self, clean: impl Fn(&str) -> String) -> String {
        one_line(&clean(&String::from_utf8_lossy(&self.body)), MAX_SHOWN_CHARS)
    }

    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.head.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn retry_after(&self) -> Option<Duration> {
        self.header(header::RETRY_AFTER).and_then(|text| parse_delay(text, SystemTime::now()))
    }
}

/// `Retry-After` in seconds or as a date. Now, or a time that is over, means nothing: a receiver in trouble is not to be
/// asked without a pause.
fn parse_delay(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let delay = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        httpdate::parse_http_date(text).ok()?.duration_since(now).ok()?
    };
    Some(delay.min(MAX_DELAY)).filter(|delay| !delay.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)]) -> Answer {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Answer { head: response.body(()).unwrap().into_parts().0, body: Vec::new() }
    }

    #[test]
    fn the_status_decides() {
        let park_on = [StatusCode::BAD_REQUEST, StatusCode::GONE];
        let verdict = |status: u16| answer(status, &[]).verdict(&park_on);
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(verdict(status), Verdict::Delivered, "{status}");
        }
        for status in [400, 410] {
            assert_eq!(verdict(status), Verdict::Refused, "{status}");
            assert_eq!(answer(status, &[]).verdict(&[]), Verdict::Later(None), "{status}");
        }
        for status in [301, 304, 308, 401, 403, 404, 408, 409, 422, 425, 429, 431, 500, 503, 599, 600, 999] {
            assert_eq!(verdict(status), Verdict::Later(None), "{status}");
        }
    }

    #[test]
    fn only_a_redirect_points_elsewhere() {
        let to = [("location", "/there")];
        for status in [301, 302, 303, 307, 308] {
            assert_eq!(answer(status, &to).location(), Some("/there"), "{status}");
        }
        assert_eq!((answer(404, &to).location(), answer(302, &[]).location()), (None, None));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        let now = httpdate::parse_http_date("Mon, 16 Nov 2026 10:00:00 GMT").unwrap();
        let cases = [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("0", None),
            ("-7", None),
            ("soon", None),
            ("", None),
            ("86400", Some(3600)),
            ("99999999999999999999999", Some(3600)),
            ("Mon, 16 Nov 2026 10:00:09 GMT", Some(9)),
            ("Mon, 16 Nov 2026 09:59:59 GMT", None),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(3600)),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_delay(text, now), seconds.map(Duration::from_secs), "{text:?}");
        }
        assert_eq!(
            answer(503, &[("retry-after", "9")]).verdict(&[]),
            Verdict::Later(Some(Duration::from_secs(9)))
        );
    }
}
