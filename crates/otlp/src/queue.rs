//! Spans that wait for their turn: bounded, and never waited for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox_core::metrics::{self, Counter};
use oncebox_core::telemetry::{Recorder, Span};
use tokio::sync::Notify;

/// The most spans that wait: some megabytes.
const MOST_WAITING: usize = 8192;
/// The most spans in one request.
pub(crate) const MOST_AT_ONCE: usize = 512;
/// How long the first span of a request waits for others.
const GATHER: Duration = Duration::from_millis(500);

/// The spans that wait. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Queue(Arc<Inner>);

struct Inner {
    waiting: Mutex<VecDeque<Span>>,
    /// There are some, or many.
    some: Notify,
    many: Notify,
    dropped: Counter,
}

impl Queue {
    pub(crate) fn new() -> Self {
        let dropped = metrics::telemetry_dropped_total();
        // Shown before the first one.
        dropped.absolute(0);
        Self(Arc::new(Inner { waiting: Mutex::default(), some: Notify::new(), many: Notify::new(), dropped }))
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next spans to send: waits until there are some, and for a moment whether there will be many.
    pub(crate) async fn next(&self) -> Vec<Span> {
        while self.waiting().is_empty() {
            self.0.some.notified().await;
        }
        while self.waiting().len() < MOST_AT_ONCE {
            if tokio::time::timeout(GATHER, self.0.many.notified()).await.is_err() {
                break;
            }
        }
        self.take()
    }

    /// What waits now, as much as one request holds.
    pub(crate) fn take(&self) -> Vec<Span> {
        let mut waiting = self.waiting();
        let count = waiting.len().min(MOST_AT_ONCE);
        waiting.drain(..count).collect()
    }

    /// So many are not sent.
    pub(crate) fn drop_counted(&self, spans: u64) {
        self.0.dropped.increment(spans);
    }
}

impl Recorder for Queue {
    fn record(&self, spans: Vec<Span>) {
        let mut waiting = self.waiting();
        let room = MOST_WAITING.saturating_sub(waiting.len());
        let left_out = spans.len().saturating_sub(room);
        waiting.extend(spans.into_iter().take(room));
        let many = waiting.len() >= MOST_AT_ONCE;
        drop(waiting);
        self.0.some.notify_one();
        if many {
            self.0.many.notify_one();
        }
        if left_out > 0 {
            self.drop_counted(left_out as u64);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::SystemTime;

    use oncebox_core::telemetry::{Kind, SpanId, TraceId};

    use super::*;

    pub(crate) fn spans(count: usize) -> Vec<Span> {
        let span = |nth: usize| Span {
            trace_id: TraceId([1; 16]),
            span_id: SpanId([1; 8]),
            parent: None,
            name: nth.to_string(),
            kind: Kind::Internal,
            start: SystemTime::UNIX_EPOCH,
            end: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
        };
        (0..count).map(span).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_no_room_is_dropped_and_the_rest_keeps_its_order() {
        let queue = Queue::new();
        for _ in 0..3 {
            queue.record(spans(4000));
        }
        assert_eq!(queue.waiting().len(), MOST_WAITING);
        let first = queue.next().await;
        assert_eq!((first.len(), first[0].name.as_str()), (MOST_AT_ONCE, "0"));
        let rest: usize = std::iter::from_fn(|| Some(queue.take().len()).filter(|taken| *taken > 0)).sum();
        assert_eq!(rest, MOST_WAITING - MOST_AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_span_does_not_wait_for_ever() {
        let queue = Queue::new();
        queue.record(spans(1));
        assert_eq!(queue.next().await.len(), 1);
    }
}
