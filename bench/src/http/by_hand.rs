//! What people write by hand: a handler with one transaction per request.

use std::net::SocketAddr;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::net::TcpListener;

use super::{ID, PATH};
use crate::server;

/// What the handler works on.
#[derive(Debug, clap::Args)]
pub(crate) struct Job {
    /// The database.
    #[arg(long)]
    store: String,
    /// Where it takes requests.
    #[arg(long)]
    listen: SocketAddr,
    /// The most connections to the database.
    #[arg(long)]
    pool: u32,
}

pub(crate) async fn run(job: Job) -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(job.pool).connect(&job.store).await?;
    let router = Router::new()
        .route(PATH, post(receive))
        .route("/readyz", get(async || StatusCode::OK))
        .with_state(pool);
    let listener = TcpListener::bind(job.listen).await?.tap_io(|stream| {
        stream.set_nodelay(true).ok();
    });
    axum::serve(listener, router).await?;
    Ok(())
}

async fn receive(
    State(pool): State<PgPool>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, StatusCode> {
    let id = headers.get(ID).and_then(|id| id.to_str().ok()).ok_or(StatusCode::BAD_REQUEST)?;
    let update = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let mut conn = pool.acquire().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let applied = server::apply_by_hand(&mut conn, id, &update).await;
    applied.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(StatusCode::NO_CONTENT)
}
