//! Between the network and the pages: who asks, from where, and what a browser may do with the answer.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access::{Caller, Denied, Role};
use crate::backend::Trouble;
use crate::site::Site;
use crate::{api, assets, pages};

/// Nothing inline, nothing from elsewhere, in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Where somebody signs in, who has not yet.
pub(crate) const SIGN_IN: &str = "/sign-in";

/// Lets a request through whose sender may send it, and puts the [`Caller`] beside it.
pub(crate) async fn guard(State(site): State<Arc<Site>>, mut request: Request, next: Next) -> Response {
    let answer = match admitted(&site, &request) {
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            next.run(request).await
        }
        Err(refusal) => refusal.answer(request.uri().path()),
    };
    with_headers(answer)
}

/// Why a request is not answered.
enum Refusal {
    Host,
    SignIn,
    OtherSite,
    Role,
}

fn admitted(site: &Site, request: &Request) -> Result<Option<Caller>, Refusal> {
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if changes && !is_same_site(request.headers()) {
        return Err(Refusal::OtherSite);
    }
    let path = request.uri().path();
    let is_open = path == SIGN_IN || assets::is_asset(path);
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    match site.settings.access.caller(request.headers(), peer) {
        Ok(caller) if changes && !is_open && path != pages::SIGN_OUT && caller.role < Role::Act => {
            Err(Refusal::Role)
        }
        Ok(caller) => Ok(Some(caller)),
        Err(Denied::Host) => Err(Refusal::Host),
        Err(Denied::SignIn) if is_open => Ok(None),
        Err(Denied::SignIn) => Err(Refusal::SignIn),
    }
}

/// Whether a request that changes something comes from a page of ours, or from no browser at all.
fn is_same_site(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site")) {
        return matches!(site, "same-origin" | "none");
    }
    match (text(header::ORIGIN), text(header::HOST)) {
        (None, _) => true,
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, rest)| rest == host),
        (Some(_), None) => false,
    }
}

impl Refusal {
    fn answer(self, path: &str) -> Response {
        let (status, text) = match self {
            Self::Host => (
                StatusCode::FORBIDDEN,
                "Nobody signs in here, so only the names of this machine are answered, such as 127.0.0.1. Set up [http.auth] to \
                 reach the dashboard under another name.",
            ),
            Self::SignIn if !api::is_api(path) => {
                return (StatusCode::SEE_OTHER, [(header::LOCATION, SIGN_IN)]).into_response();
            }
            Self::SignIn => {
                (StatusCode::UNAUTHORIZED, "Send a token of [http.auth]: Authorization: Bearer …")
            }
            Self::OtherSite => (StatusCode::FORBIDDEN, "This request comes from a page of another site."),
            Self::Role => (StatusCode::FORBIDDEN, "Your token may read, not act."),
        };
        if api::is_api(path) {
            return api::problem(status, text);
        }
        pages::refusal(status, text)
    }
}

fn with_headers(mut answer: Response<Body>) -> Response {
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Without any, browsers would hide where a form comes from.
        (header::REFERRER_POLICY, "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

/// The status of a trouble.
pub(crate) fn status(trouble: &Trouble) -> StatusCode {
    match trouble {
        Trouble::Away(_) => StatusCode::SERVICE_UNAVAILABLE,
        Trouble::Missing(_) => StatusCode::NOT_FOUND,
        Trouble::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Trouble::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(pairs: &[(&'static str, &'static str)]) -> bool {
        let header = |(name, value): &(&'static str, &'static str)| {
            (header::HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        is_same_site(&pairs.iter().map(header).collect())
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        assert!(same(&[("sec-fetch-site", "same-origin")]) && same(&[("sec-fetch-site", "none")]));
        assert!(!same(&[("sec-fetch-site", "cross-site")]) && !same(&[("sec-fetch-site", "same-site")]));
        assert!(same(&[("host", "127.0.0.1:7878")]), "no browser");
        assert!(same(&[("host", "127.0.0.1:7878"), ("origin", "http://127.0.0.1:7878")]));
        for origin in
            ["http://evil.example", "null", "http://127.0.0.1:7879", "http://127.0.0.1:7878.evil.example"]
        {
            assert!(!same(&[("host", "127.0.0.1:7878"), ("origin", origin)]), "{origin}");
        }
        assert!(!same(&[("sec-fetch-site", "cross-site"), ("host", "a"), ("origin", "http://a")]));
    }
}
