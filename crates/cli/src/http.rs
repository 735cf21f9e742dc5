//! What the daemon shows of itself (`/healthz`, `/readyz`, `/metrics`), and the paths of the inboxes that take requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use oncebox_core::metrics::loop_last_success_age_seconds;
use oncebox_core::monitor::{LoopReport, Monitor};
use oncebox_http::ServerLimits;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::output;

/// A loop that has work and no success for this long is stalled.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// What the endpoints read.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) monitor: Monitor,
    pub(crate) ready: Arc<AtomicBool>,
    pub(crate) metrics: PrometheusHandle,
}

/// Binds the address.
pub(crate) fn listen(address: SocketAddr) -> std::io::Result<Arc<std::net::TcpListener>> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    info!(address = %listener.local_addr()?, "listening: /healthz /readyz /metrics");
    Ok(Arc::new(listener))
}

/// Serves until `stop`. `inboxes` are the paths that take requests.
pub(crate) async fn serve(
    listener: Arc<std::net::TcpListener>,
    shown: Shown,
    inboxes: Router,
    stop: CancellationToken,
) {
    let router = Router::new()
        .route("/", get(|| async { "oncebox: /healthz /readyz /metrics\n" }))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shown)
        .merge(inboxes);
    match listener.try_clone().and_then(TcpListener::from_std) {
        Ok(listener) => oncebox_http::serve(listener, router, ServerLimits::default(), stop).await,
        Err(error) => tracing::error!(%error, "the HTTP endpoint ended"),
    }
}

#[derive(Serialize)]
struct Health {
    healthy: bool,
    loops: Vec<LoopHealth>,
}

#[derive(Serialize)]
struct LoopHealth {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    healthy: bool,
    last_success_age_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alarm: Option<String>,
}

fn health(monitor: &Monitor) -> Health {
    let loops: Vec<LoopHealth> = monitor
        .report()
        .into_iter()
        .map(|report: LoopReport| LoopHealth {
            healthy: !report.is_unhealthy(STALL_LIMIT),
            last_success_age_seconds: report.age.as_secs_f64(),
            name: report.name,
            detail: report.detail,
            error: report.error,
            alarm: report.alarm,
        })
        .collect();
    Health { healthy: loops.iter().all(|l| l.healthy), loops }
}

/// Red when a loop stalls, a partition stands still, or events wait for too long.
async fn healthz(State(shown): State<Shown>) -> impl IntoResponse {
    let health = health(&shown.monitor);
    let status = if health.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = output::json_text(&health).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], body)
}

/// Green once everything is set up.
async fn readyz(State(shown): State<Shown>) -> impl IntoResponse {
    if shown.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting\n")
    }
}

async fn metrics(State(shown): State<Shown>) -> impl IntoResponse {
    let mut ages: BTreeMap<String, f64> = BTreeMap::new();
    for report in shown.monitor.report() {
        let age = ages.entry(report.name).or_default();
        *age = age.max(report.age.as_secs_f64());
    }
    for (name, age) in ages {
        loop_last_success_age_seconds(name).set(age);
    }
    shown.metrics.run_upkeep();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], shown.metrics.render())
}
