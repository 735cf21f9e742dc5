//! Reads the body of a request: bounded in bytes and in time, and all bodies together bounded in bytes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::limits::Limits;
use crate::problem::Problem;

/// A body, and the memory that was set apart for it. That is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

/// The memory for the bodies of all requests under way.
#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Semaphore>);

impl Memory {
    pub(crate) fn of(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// Sets apart so many more bytes; false if there are not so many.
    fn take(&self, bytes: usize, held: &mut Option<OwnedSemaphorePermit>) -> bool {
        let Ok(bytes) = u32::try_from(bytes) else { return false };
        let Ok(more) = Arc::clone(&self.0).try_acquire_many_owned(bytes) else { return false };
        match held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        true
    }
}

/// Reads the whole body. Memory is set apart for what has arrived, not for what a client announces.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Body,
    limits: &Limits,
    memory: &Memory,
) -> Result<Held, Problem> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > limits.body_bytes as u64) {
        return Err(too_large(limits));
    }
    let deadline = Instant::now() + limits.body_within;
    let (mut whole, mut held) = (BytesMut::new(), None);
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(too_slow(limits.body_within)),
            Ok(None) => return Ok(Held { bytes: whole.freeze(), _memory: held }),
            Ok(Some(Err(_))) => return Err(broken()),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(part) = frame.into_data() else { continue };
        if whole.len() + part.len() > limits.body_bytes {
            return Err(too_large(limits));
        }
        if !memory.take(part.len(), &mut held) {
            return Err(no_memory(limits));
        }
        whole.extend_from_slice(&part);
    }
}

fn too_large(limits: &Limits) -> Problem {
    let detail = format!("the body has more than {} bytes, which is the limit here", limits.body_bytes);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "The body is too large", detail).close()
}

fn too_slow(within: Duration) -> Problem {
    let detail = format!("the body did not arrive within {within:?}");
    Problem::new(StatusCode::REQUEST_TIMEOUT, "The body is too slow", detail).close()
}

fn broken() -> Problem {
    let detail = "the body ended too early, or is not written as HTTP has it";
    Problem::new(StatusCode::BAD_REQUEST, "The body is broken", detail).close()
}

fn no_memory(limits: &Limits) -> Problem {
    let detail = "too many large requests are under way; send it again later";
    let busy = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", detail);
    busy.retry_after(limits.retry_after).close()
}
