//! Loops never die quietly: each one reports here, and `/healthz`, `/readyz` and the metrics read it.

mod handle;
mod lag;
mod tally;
mod troubles;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

pub use handle::LoopHandle;
use handle::LoopState;
pub(crate) use lag::PartitionLag;
pub use lag::{ConsumerLag, LagReport};
pub use tally::Tallied;
pub(crate) use tally::Tally;
use troubles::Troubles;

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
pub struct Monitor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    loops: Registry<LoopState>,
    lags: Registry<PartitionLag>,
    troubles: Troubles,
    tallies: Mutex<BTreeMap<String, Arc<Tally>>>,
}

/// What is there as long as somebody holds it, in the order in which it came.
#[derive(Debug)]
struct Registry<T> {
    next: AtomicU64,
    entries: Mutex<BTreeMap<u64, Weak<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(0), entries: Mutex::default() }
    }
}

impl<T> Registry<T> {
    /// `make` gets the number under which it has to be removed.
    fn add(&self, make: impl FnOnce(u64) -> T) -> Arc<T> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(make(number));
        lock(&self.entries).insert(number, Arc::downgrade(&entry));
        entry
    }

    fn remove(&self, number: u64) {
        lock(&self.entries).remove(&number);
    }

    fn all(&self) -> Vec<Arc<T>> {
        lock(&self.entries).values().filter_map(Weak::upgrade).collect()
    }
}

/// What a loop looks like from outside.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoopReport {
    /// The kind of loop, such as `inbox:stock` or `purge`.
    pub name: String,
    /// Which one of them, such as the topic and partition.
    pub detail: String,
    /// How long since it last succeeded; zero while there is nothing to do.
    pub age: Duration,
    /// What goes wrong at the moment.
    pub error: Option<String>,
    /// What is wrong although the loop itself runs, until it is over.
    pub problems: Vec<String>,
    /// It stands still until an operator acts.
    pub stopped: bool,
    /// Whether it is a member of its group, for a source that has one: before that it gets no work.
    pub member: Option<bool>,
}

impl LoopReport {
    /// Whether the loop needs attention: it stands still, has a problem, or has not succeeded for longer than `limit`.
    #[must_use]
    pub fn is_unhealthy(&self, limit: Duration) -> bool {
        self.stopped || !self.problems.is_empty() || self.age > limit
    }
}

impl Monitor {
    /// Registers a loop. Its entry goes when the handle is dropped.
    ///
    /// The end of a trouble is logged for all loops of a name together, once: they often fail for the same reason.
    pub fn register(&self, name: impl Into<String>, detail: impl Into<String>) -> LoopHandle {
        self.register_with(name, detail, "goes on")
    }

    /// Registers a loop whose troubles are logged by who has them: at their beginning, and at their end too.
    pub fn register_unlogged(&self, name: impl Into<String>, detail: impl Into<String>) -> LoopHandle {
        self.add(name.into(), detail.into(), None)
    }

    /// Registers a loop that has words of its own for the end of its trouble.
    pub fn register_with(
        &self,
        name: impl Into<String>,
        detail: impl Into<String>,
        when_over: &'static str,
    ) -> LoopHandle {
        self.add(name.into(), detail.into(), Some(when_over))
    }

    fn add(&self, name: String, detail: String, when_over: Option<&'static str>) -> LoopHandle {
        let monitor = self.clone();
        LoopHandle(self.0.loops.add(|number| LoopState::new(number, name, detail, when_over, monitor)))
    }

    /// All loops, as they are now.
    #[must_use]
    pub fn report(&self) -> Vec<LoopReport> {
        self.0.loops.all().iter().map(|state| state.report()).collect()
    }
}
