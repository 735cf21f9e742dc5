//! Loops never die quietly: each one reports here, and `/healthz` and the metrics read it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Locks a mutex whose holder never leaves the data half-written, so a panic elsewhere is no reason to stop.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all loops of a process report to. Cheap to clone: give the same one to every inbox and relay.
///
/// ```
/// use std::time::Duration;
///
/// use oncebox::Monitor;
///
/// let monitor = Monitor::default();
/// // … `Inbox::monitor(monitor.clone())`, `Relay::monitor(monitor.clone())` …
/// let healthy = !monitor.report().iter().any(|a_loop| a_loop.is_unhealthy(Duration::from_secs(120)));
/// assert!(healthy, "nothing runs yet");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Monitor {
    loops: Arc<Mutex<Vec<Weak<LoopState>>>>,
}

#[derive(Debug)]
struct LoopState {
    name: String,
    detail: String,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    last_success: Instant,
    idle: bool,
    error: Option<String>,
    alarm: Option<String>,
    stopped: bool,
}

/// One loop's handle to its entry; the entry goes when the handle is dropped.
#[derive(Debug, Clone)]
pub struct LoopHandle(Arc<LoopState>);

/// What a loop looks like from outside.
#[derive(Debug, Clone)]
pub struct LoopReport {
    /// The kind of loop, such as `inbox:stock` or `purge`.
    pub name: String,
    /// Which one of them, such as the topic and partition.
    pub detail: String,
    /// How long since it last succeeded; zero while there is nothing to do.
    pub age: Duration,
    /// What goes wrong at the moment.
    pub error: Option<String>,
    /// A limit that is exceeded, although the loop itself runs.
    pub alarm: Option<String>,
    /// It stands still until an operator acts.
    pub stopped: bool,
}

impl LoopReport {
    /// Whether the loop needs attention: it stands still, has raised an alarm, or has not succeeded for longer than `limit`.
    #[must_use]
    pub fn is_unhealthy(&self, limit: Duration) -> bool {
        self.stopped || self.alarm.is_some() || self.age > limit
    }
}

impl Monitor {
    /// Registers a loop.
    pub fn register(&self, name: impl Into<String>, detail: impl Into<String>) -> LoopHandle {
        let state = Arc::new(LoopState {
            name: name.into(),
            detail: detail.into(),
            inner: Mutex::new(Inner {
                last_success: Instant::now(),
                idle: false,
                error: None,
                alarm: None,
                stopped: false,
            }),
        });
        let mut loops = lock(&self.loops);
        loops.retain(|entry| entry.strong_count() > 0);
        loops.push(Arc::downgrade(&state));
        LoopHandle(state)
    }

    /// All loops, as they are now.
    #[must_use]
    pub fn report(&self) -> Vec<LoopReport> {
        lock(&self.loops).iter().filter_map(Weak::upgrade).map(|state| state.report()).collect()
    }
}

impl LoopState {
    fn report(&self) -> LoopReport {
        let inner = lock(&self.inner);
        let age = if inner.idle { Duration::ZERO } else { inner.last_success.elapsed() };
        LoopReport {
            name: self.name.clone(),
            detail: self.detail.clone(),
            age,
            error: inner.error.clone(),
            alarm: inner.alarm.clone(),
            stopped: inner.stopped,
        }
    }
}

impl LoopHandle {
    /// The loop did its work.
    pub fn succeeded(&self) {
        let mut inner = lock(&self.0.inner);
        inner.last_success = Instant::now();
        inner.error = None;
    }

    /// The loop has nothing to do: its age stands at zero until [`LoopHandle::busy`].
    pub fn idle(&self) {
        let mut inner = lock(&self.0.inner);
        inner.idle = true;
        inner.error = None;
    }

    /// The loop has work again.
    pub fn busy(&self) {
        let mut inner = lock(&self.0.inner);
        if inner.idle {
            inner.idle = false;
            inner.last_success = Instant::now();
        }
    }

    /// The loop failed and will try again.
    pub fn failed(&self, error: impl Into<String>) {
        let mut inner = lock(&self.0.inner);
        inner.idle = false;
        inner.error = Some(error.into());
    }

    /// A limit is exceeded, although the loop itself runs; or, with `None`, it is not any more.
    pub fn alarm(&self, limit: Option<String>) {
        lock(&self.0.inner).alarm = limit;
    }

    /// The loop stands still until an operator acts.
    pub fn stopped(&self, reason: impl Into<String>) {
        let mut inner = lock(&self.0.inner);
        inner.idle = false;
        inner.stopped = true;
        inner.error = Some(reason.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_loop_is_healthy_and_a_stopped_one_is_not() {
        let monitor = Monitor::default();
        let handle = monitor.register("inbox:stock", "stock.updates/0");
        handle.idle();
        assert!(!monitor.report()[0].is_unhealthy(Duration::ZERO));
        handle.busy();
        std::thread::sleep(Duration::from_millis(2));
        assert!(monitor.report()[0].is_unhealthy(Duration::from_millis(1)), "busy without success");
        handle.succeeded();
        handle.failed("the database is away");
        assert_eq!(monitor.report()[0].error.as_deref(), Some("the database is away"));
        handle.succeeded();
        handle.alarm(Some("too old".to_owned()));
        handle.idle();
        assert!(monitor.report()[0].is_unhealthy(Duration::MAX), "an alarm outlives success and idleness");
        handle.alarm(None);
        assert!(!monitor.report()[0].is_unhealthy(Duration::MAX));
        handle.stopped("halted");
        assert!(monitor.report()[0].is_unhealthy(Duration::MAX));
        drop(handle);
        assert!(monitor.report().is_empty());
    }
}
