//! The files of the pages, embedded in the program.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::site::Site;

const FOLDER: &str = "/assets/";

const STYLE: &str = include_str!("../assets/dashboard.css");
const SCRIPT: &str = include_str!("../assets/live.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// Whether somebody who has not signed in may have it: it says nothing.
pub(crate) fn is_asset(path: &str) -> bool {
    path.starts_with(FOLDER) || path == "/favicon.ico"
}

pub(crate) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/assets/dashboard.css", get(|| async { file("text/css; charset=utf-8", STYLE) }))
        .route("/assets/live.js", get(|| async { file("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/assets/icon.svg", get(|| async { file("image/svg+xml", ICON) }))
        .route(
            "/favicon.ico",
            get(|| async { (StatusCode::SEE_OTHER, [(header::LOCATION, "/assets/icon.svg")]) }),
        )
}

fn file(kind: &'static str, text: &'static str) -> Response {
    // A new version of the program has new files under the same names.
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}
