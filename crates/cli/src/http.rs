//! What the daemon shows of itself (`/livez`, `/readyz`, `/healthz`, `/metrics`), and the paths of the inboxes that take requests.

mod gauges;
mod health;
mod readiness;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use oncebox_core::inbox::PauseWatch;
use oncebox_core::monitor::Monitor;
use oncebox_dashboard::Dashboard;
use oncebox_http::ServerLimits;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::commands::pause;
use crate::output;
use health::Health;
pub(crate) use readiness::Readiness;

/// What the endpoints read.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) monitor: Monitor,
    pub(crate) ready: Readiness,
    pub(crate) pauses: PauseWatch,
    pub(crate) metrics: PrometheusHandle,
}

/// Binds the address.
pub(crate) fn listen(address: SocketAddr, dashboard: bool) -> std::io::Result<Arc<std::net::TcpListener>> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    info!(address = %listener.local_addr()?, "listening: /healthz /livez /readyz /metrics{}", if dashboard { ", the dashboard at /" } else { "" });
    Ok(Arc::new(listener))
}

/// Serves until `stop`. `inboxes` are the paths that take requests; what is none of them is the dashboard's, if there is one.
pub(crate) async fn serve(
    listener: Arc<std::net::TcpListener>,
    shown: Shown,
    inboxes: Router,
    dashboard: Option<Dashboard>,
    stop: CancellationToken,
) {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .with_state(shown)
        .merge(inboxes);
    let router = match dashboard {
        Some(dashboard) => router.fallback_service(dashboard.router()),
        None => router.route("/", get(|| async { "oncebox: /healthz /livez /readyz /metrics\n" })),
    };
    match listener.try_clone().and_then(TcpListener::from_std) {
        Ok(listener) => oncebox_http::serve(listener, router, ServerLimits::default(), stop).await,
        Err(error) => tracing::error!(%error, "the HTTP endpoint ended"),
    }
}

/// Green as long as the process can answer at all. Whatever is wrong beyond that, a restart would not mend it.
async fn livez() -> impl IntoResponse {
    "alive\n"
}

/// Green once everything is set up and every source is a member of its group.
async fn readyz(State(shown): State<Shown>) -> impl IntoResponse {
    match shown.ready.missing() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("{missing}\n")),
    }
}

/// Red when an operator should look: a loop stalls or has a problem, a partition stands still.
async fn healthz(State(shown): State<Shown>) -> impl IntoResponse {
    let mut health = Health::of(shown.monitor.report());
    health.paused = shown.pauses.paused().iter().map(pause::as_json).collect();
    let status = if health.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = output::json_text(&health).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], body)
}

async fn metrics(State(shown): State<Shown>) -> impl IntoResponse {
    shown.metrics.run_upkeep();
    let mut page = shown.metrics.render();
    gauges::render(&shown.monitor, &mut page);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page)
}
