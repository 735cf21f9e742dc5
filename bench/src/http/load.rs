//! Senders on connections that are kept alive: each waits for its answer and sends the next request.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{ID, PATH};
use crate::workload::{self, Message, Topic};

/// How long requests are sent before they are counted.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long to wait before another look.
const PAUSE: Duration = Duration::from_millis(20);

/// No answer here has a longer head.
const LONGEST_HEAD: usize = 16 * 1024;

/// What some senders saw.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    senders: usize,
    seconds: f64,
    /// How long each request took, in seconds, in ascending order.
    took: Vec<f64>,
}

impl Load {
    pub(crate) fn new(senders: usize) -> Self {
        Self { senders, seconds: 0.0, took: Vec::new() }
    }

    /// Sends for so long, and says how many different messages there were.
    pub(crate) async fn run(&mut self, address: SocketAddr, length: Duration) -> Result<i64> {
        let began = Instant::now();
        let (from, until) = (began + WARM_UP, began + WARM_UP + length);
        let mut senders = JoinSet::new();
        for _ in 0..self.senders {
            senders.spawn(send(address, from, until));
        }
        let mut sent = 0;
        while let Some(done) = senders.join_next().await {
            let (count, took) = done??;
            sent += workload::unique(count);
            self.took.extend(took);
        }
        self.took.sort_by(f64::total_cmp);
        self.seconds = length.as_secs_f64();
        Ok(i64::try_from(sent)?)
    }

    /// Requests that were answered, per second.
    pub(crate) fn rate(&self) -> f64 {
        self.took.len() as f64 / self.seconds
    }

    /// How long a request took, in milliseconds, that was slower than so many of a hundred.
    pub(crate) fn percentile(&self, of_hundred: usize) -> f64 {
        self.took.get(self.took.len() * of_hundred / 100).map_or(f64::NAN, |seconds| seconds * 1_000.0)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, half, most) = (self.rate(), self.percentile(50), self.percentile(99));
        let senders = self.senders;
        write!(f, "{senders:>3} connections {rate:>7.0} requests/s, p50 {half:.2} ms, p99 {most:.2} ms")
    }
}

/// Waits until the server says that it takes requests.
pub(crate) async fn ready(address: SocketAddr) {
    let is_ready = async || -> Result<bool> {
        let mut connection = connect(address).await?;
        let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        Ok(answer.starts_with("HTTP/1.1 200 "))
    };
    while !is_ready().await.unwrap_or(false) {
        tokio::time::sleep(PAUSE).await;
    }
}

/// One sender: how many requests it sent, and how long those took that count.
///
/// It writes and reads plain bytes: it has the same cores as the server, and a client that does more would be part of what is measured.
async fn send(address: SocketAddr, from: Instant, until: Instant) -> Result<(u64, Vec<f64>)> {
    let mut connection = connect(address).await?;
    let (mut sent, mut took) = (0, Vec::new());
    let mut messages = workload::messages(&Topic::plain(u64::MAX));
    loop {
        let began = Instant::now();
        if began >= until {
            return Ok((sent, took));
        }
        let Message { id, payload, .. } = messages.next().context("there are enough messages")?;
        let length = payload.len();
        let request = format!(
            "POST {PATH} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{ID}: {id}\r\n\
             content-length: {length}\r\n\r\n{payload}"
        );
        connection.write_all(request.as_bytes()).await?;
        let answer = head(&mut connection).await?;
        ensure!(answer.starts_with("HTTP/1.1 204 "), "the answer is {answer:?}");
        sent += 1;
        if began >= from {
            took.push(began.elapsed().as_secs_f64());
        }
    }
}

/// The head of an answer. One that succeeds is 204, and has no body.
async fn head(connection: &mut TcpStream) -> Result<String> {
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        let read = connection.read_buf(&mut head).await?;
        ensure!(read > 0 && head.len() < LONGEST_HEAD, "no answer: {:?}", String::from_utf8_lossy(&head));
        if !head.starts_with(b"HTTP/1.1 204 ") && head.len() > 12 {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
