//! Signing in with a token, and out.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::html;

use super::{rendered, see};
use crate::access::COOKIE;
use crate::fields::Fields;
use crate::guard::SIGN_IN;
use crate::html::Page;
use crate::site::Site;

pub(super) async fn page(State(site): State<Arc<Site>>) -> Response {
    form(&site, StatusCode::OK, None)
}

pub(super) async fn enter(State(site): State<Arc<Site>>, body: Bytes) -> Response {
    let token = Fields::of_form(&body).maybe("token").unwrap_or_default();
    match site.settings.access.cookie_for(&token) {
        Some(cookie) => {
            let cookie = format!("{COOKIE}={cookie}; Path=/; HttpOnly; SameSite=Strict");
            (StatusCode::SEE_OTHER, [(header::LOCATION, "/".to_owned()), (header::SET_COOKIE, cookie)])
                .into_response()
        }
        None => form(&site, StatusCode::UNAUTHORIZED, Some("This token is not known.")),
    }
}

pub(super) async fn leave() -> Response {
    let mut answer = see(SIGN_IN);
    let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    if let Ok(gone) = gone.parse() {
        answer.headers_mut().insert(header::SET_COOKIE, gone);
    }
    answer
}

fn form(site: &Site, status: StatusCode, problem: Option<&str>) -> Response {
    let body = html! {
        section.panel.sign-in {
            h1 { "Sign in" }
            @if let Some(problem) = problem { p.note role="alert" { (problem) } }
            @if site.settings.access.has_tokens() {
                form.stack method="post" action=(SIGN_IN) {
                    // For whoever keeps passwords: a token has no name of its own.
                    input type="text" name="username" value="dashboard" autocomplete="username" aria-label="User" hidden;
                    label { "Token" input type="password" name="token" required autocomplete="current-password" autofocus; }
                    button { "Sign in" }
                    p.help { "A token of [http.auth] in the configuration: one may read, the other may act." }
                }
            } @else {
                p { "The proxy in front of this dashboard says who you are, and it did not." }
            }
        }
    };
    rendered(status, &Page { title: "Sign in", here: "", caller: None, live: false, body })
}
