//! The pages.

mod consumer;
mod dead;
mod edit;
mod find;
mod health;
mod job;
mod letter;
mod outbox;
mod overview;
mod retention;
mod sign_in;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::{Markup, html};

use crate::access::{Caller, Role};
use crate::backend::Trouble;
use crate::fields::Fields;
use crate::guard::{self, SIGN_IN};
use crate::html::Page;
use crate::site::Site;

/// A form holds a payload of some length, and each of its bytes may take three.
const LARGEST_FORM: usize = 4 * edit::LARGEST_PAYLOAD;

/// Where somebody signs out.
pub(crate) const SIGN_OUT: &str = "/sign-out";

pub(crate) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/", get(overview::page))
        .route("/consumers/{consumer}", get(consumer::page))
        .route("/dead", get(dead::list))
        .route("/dead/{number}", get(letter::page))
        .route("/dead/{number}/edit", get(edit::page))
        .route("/find", get(find::page))
        .route("/outbox", get(outbox::page))
        .route("/retention", get(retention::page))
        .route("/health", get(health::page))
        .route("/jobs/{number}", get(job::page))
        .route("/jobs/{number}/cancel", post(job::cancel))
        .route("/do/{name}", post(act).layer(DefaultBodyLimit::max(LARGEST_FORM)))
        .route(SIGN_IN, get(sign_in::page).post(sign_in::enter))
        .route(SIGN_OUT, post(sign_in::leave))
}

/// A request that has passed the guard.
pub(crate) struct Ask {
    pub(crate) site: Arc<Site>,
    pub(crate) caller: Caller,
    /// What stands in its query.
    pub(crate) fields: Fields,
}

impl FromRequestParts<Arc<Site>> for Ask {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Infallible> {
        // The guard puts a caller beside every request that needs one.
        let nobody = || Caller { name: String::new(), role: Role::Read, has_cookie: false };
        Ok(Self {
            site: Arc::clone(site),
            caller: parts.extensions.get().cloned().unwrap_or_else(nobody),
            fields: Fields::of_form(parts.uri.query().unwrap_or_default().as_bytes()),
        })
    }
}

impl Ask {
    /// Whether buttons are worth showing. What they ask for is checked where it is asked for.
    pub(crate) fn may_act(&self) -> bool {
        self.caller.role >= Role::Act
    }

    fn show(&self, title: &str, here: &str, live: bool, body: Markup) -> Response {
        rendered(StatusCode::OK, &Page { title, here, caller: Some(&self.caller), live, body })
    }

    /// A page that says what is wrong, and keeps trying if that may help.
    fn trouble(&self, here: &str, trouble: &Trouble) -> Response {
        let title = match trouble {
            Trouble::Away(_) => "The database does not answer",
            Trouble::Missing(_) => "There is no such thing",
            Trouble::Refused(_) => "That was not done",
            Trouble::Failed(_) => "That went wrong",
        };
        let live = matches!(trouble, Trouble::Away(_));
        let body = html! {
            section.panel.verdict.is-wrong #trouble data-live[live] {
                h1 { (title) }
                p { (crate::text::shown(&trouble.to_string())) }
            }
        };
        rendered(guard::status(trouble), &Page { title, here, caller: Some(&self.caller), live, body })
    }
}

fn rendered(status: StatusCode, page: &Page<'_>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (status, kind, page.render().into_string()).into_response()
}

/// A page for somebody who is not let in.
pub(crate) fn refusal(status: StatusCode, text: &str) -> Response {
    let body = html! { section.panel.verdict.is-wrong { h1 { "Not allowed" } p { (text) } p { a href="/" { "Back to the overview" } } } };
    rendered(status, &Page { title: "Not allowed", here: "", caller: None, live: false, body })
}

pub(crate) async fn not_found(uri: Uri, ask: Ask) -> Response {
    ask.trouble("", &Trouble::Missing(format!("there is no page {}", uri.path())))
}

/// What a form asks for; then to the page that shows what became of it.
async fn act(ask: Ask, Path(name): Path<String>, body: Bytes) -> Response {
    match ask.act(&name, Ok(Fields::of_form(&body))).await {
        Ok(job) => see(&format!("/jobs/{}", job.number)),
        Err(trouble) => ask.trouble("", &trouble),
    }
}

/// Go there, with GET.
fn see(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned())]).into_response()
}
