//! Asking the dashboard something.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use oncebox_dashboard::{Access, Dashboard, Role, Settings};
use serde_json::Value;
use tower_service::Service;

use crate::fake::Fake;

pub(crate) const READER: &str = "the-token-of-a-reader";
pub(crate) const ACTOR: &str = "the-token-of-an-actor";

/// A dashboard, and what stands behind it.
pub(crate) struct Site {
    pub(crate) dashboard: Dashboard,
    pub(crate) fake: Arc<Fake>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Site {
    /// Where nobody signs in.
    pub(crate) fn local(fake: Fake) -> Self {
        Self::with(fake, Settings::default())
    }

    /// Where tokens are needed.
    pub(crate) fn signed_in(fake: Fake) -> Self {
        let tokens = [(Role::Read, READER.to_owned()), (Role::Act, ACTOR.to_owned())];
        Self::with(fake, Settings { access: Access::signed_in(tokens, None), ..Settings::default() })
    }

    pub(crate) fn with(fake: Fake, settings: Settings) -> Self {
        let (dashboard, fake) = (Dashboard::new(settings), Arc::new(fake));
        dashboard.set_backend(Arc::clone(&fake) as Arc<dyn oncebox_dashboard::Backend>);
        Self { dashboard, fake }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send("POST", path, headers, body).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(header::HOST, "127.0.0.1:7878");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::from(body.to_owned())).unwrap();
        let peer: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = self.dashboard.router().call(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn has(&self, words: &str) -> &Self {
        assert!(self.text.contains(words), "{words:?} is not in\n{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn has_not(&self, words: &str) -> &Self {
        assert!(!self.text.contains(words), "{words:?} is in\n{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
