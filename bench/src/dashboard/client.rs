//! A client that asks for a page.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What was answered, and when.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
    /// From the connection to the last byte.
    pub(super) took: Duration,
}

pub(super) async fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    let began = Instant::now();
    let mut connection = TcpStream::connect(address).await?;
    connection.set_nodelay(true)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    connection.read_to_string(&mut text).await?;
    let took = began.elapsed();
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("{path}: no answer"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("a status")?;
    Ok(Answer { status, body: body.to_owned(), took })
}
