//! What a loop says of itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{LoopReport, Monitor, lock};

#[derive(Debug)]
pub(super) struct LoopState {
    number: u64,
    name: String,
    detail: String,
    /// What the log says after a trouble.
    when_over: Option<&'static str>,
    monitor: Monitor,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    last_success: Instant,
    idle: bool,
    error: Option<String>,
    /// By what they are about.
    problems: BTreeMap<String, String>,
    stopped: bool,
    member: Option<bool>,
    /// Whether it counts among the loops of its name that are in trouble.
    in_trouble: bool,
}

/// One loop's handle to its entry; the entry goes when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct LoopHandle(pub(super) Arc<LoopState>);

impl LoopState {
    pub(super) fn new(
        number: u64,
        name: String,
        detail: String,
        when_over: Option<&'static str>,
        monitor: Monitor,
    ) -> Self {
        let inner = Inner {
            last_success: Instant::now(),
            idle: false,
            error: None,
            problems: BTreeMap::new(),
            stopped: false,
            member: None,
            in_trouble: false,
        };
        Self { number, name, detail, when_over, monitor, inner: Mutex::new(inner) }
    }

    pub(super) fn report(&self) -> LoopReport {
        let inner = lock(&self.inner);
        let age = if inner.idle { Duration::ZERO } else { inner.last_success.elapsed() };
        LoopReport {
            name: self.name.clone(),
            detail: self.detail.clone(),
            age,
            error: inner.error.clone(),
            problems: inner.problems.values().cloned().collect(),
            stopped: inner.stopped,
            member: inner.member,
        }
    }

    /// Trouble begins or goes on. True if that is worth a line in the log.
    fn troubled(&self, inner: &mut Inner) -> bool {
        let begins = !std::mem::replace(&mut inner.in_trouble, true);
        self.monitor.0.troubles.failed(&self.name, begins)
    }

    /// Says so if the last trouble of its name is over.
    fn relieved(&self, inner: &mut Inner) {
        if inner.error.is_none() && inner.problems.is_empty() && std::mem::take(&mut inner.in_trouble) {
            self.monitor.0.troubles.over(&self.name, self.when_over);
        }
    }
}

impl Drop for LoopState {
    fn drop(&mut self) {
        self.monitor.0.loops.remove(self.number);
        if lock(&self.inner).in_trouble {
            self.monitor.0.troubles.over(&self.name, None);
        }
    }
}

impl LoopHandle {
    /// The loop did its work.
    pub fn succeeded(&self) {
        let mut inner = lock(&self.0.inner);
        inner.last_success = Instant::now();
        inner.error = None;
        self.0.relieved(&mut inner);
    }

    /// The loop has nothing to do: its age stands at zero until [`LoopHandle::busy`].
    pub fn idle(&self) {
        let mut inner = lock(&self.0.inner);
        inner.idle = true;
        inner.error = None;
        self.0.relieved(&mut inner);
    }

    /// The loop has work again.
    pub fn busy(&self) {
        lock(&self.0.inner).begin_work();
    }

    /// The loop failed and will try again. True if that is worth a line in the log: the first time that a loop of this name
    /// fails, and then less and less often.
    ///
    /// Whoever knows that the trouble lasts does not call [`LoopHandle::succeeded`] before it is over: then the age grows, and
    /// the loop becomes unhealthy.
    pub fn failed(&self, error: impl Into<String>) -> bool {
        let mut inner = lock(&self.0.inner);
        inner.begin_work();
        inner.error = Some(error.into());
        self.0.troubled(&mut inner)
    }

    /// Something is wrong although the loop itself runs. It stays so, whatever else succeeds, until [`LoopHandle::over`] is
    /// called for the same subject. True if that is worth a line in the log, as with [`LoopHandle::failed`].
    pub fn problem(&self, subject: &str, text: impl Into<String>) -> bool {
        let mut inner = lock(&self.0.inner);
        inner.problems.insert(subject.to_owned(), text.into());
        self.0.troubled(&mut inner)
    }

    /// The problem with this subject is over, if there was one.
    pub fn over(&self, subject: &str) {
        let mut inner = lock(&self.0.inner);
        if inner.problems.remove(subject).is_some() {
            self.0.relieved(&mut inner);
        }
    }

    /// Whether the loop is a member of its group now. One that never says so has no group.
    pub fn member(&self, is_member: bool) {
        lock(&self.0.inner).member = Some(is_member);
    }

    /// Whoever was a member is none any more.
    pub(crate) fn left_its_group(&self) {
        let mut inner = lock(&self.0.inner);
        inner.member = inner.member.map(|_| false);
    }

    /// The loop stands still until an operator acts.
    pub fn stopped(&self, reason: impl Into<String>) {
        let mut inner = lock(&self.0.inner);
        inner.idle = false;
        inner.stopped = true;
        inner.error = Some(reason.into());
    }
}

impl Inner {
    fn begin_work(&mut self) {
        if std::mem::take(&mut self.idle) {
            self.last_success = Instant::now();
        }
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
        handle.stopped("halted");
        assert!(monitor.report()[0].is_unhealthy(Duration::MAX));
        drop(handle);
        assert!(monitor.report().is_empty());
    }

    #[test]
    fn a_problem_stays_until_it_is_over() {
        let monitor = Monitor::default();
        let handle = monitor.register("kafka:stock", "");
        handle.problem("orders/3", "orders/3 has no leader");
        handle.problem("orders/4", "orders/4 has no leader");
        handle.succeeded();
        handle.idle();
        assert_eq!(monitor.report()[0].problems, ["orders/3 has no leader", "orders/4 has no leader"]);
        handle.over("orders/3");
        handle.over("orders/5");
        assert!(monitor.report()[0].is_unhealthy(Duration::MAX), "one is left");
        handle.over("orders/4");
        assert!(!monitor.report()[0].is_unhealthy(Duration::MAX));
    }

    #[test]
    fn a_loop_that_fails_after_a_long_rest_is_not_old() {
        let monitor = Monitor::default();
        let handle = monitor.register("source:stock", "");
        handle.idle();
        std::thread::sleep(Duration::from_millis(20));
        handle.failed("it ended");
        assert!(monitor.report()[0].age < Duration::from_millis(20));
    }

    #[test]
    fn a_loop_without_a_group_is_no_member_and_none_that_is_missing() {
        let monitor = Monitor::default();
        let handle = monitor.register("source:stock", "");
        handle.left_its_group();
        assert_eq!(monitor.report()[0].member, None);
        handle.member(true);
        assert_eq!(monitor.report()[0].member, Some(true));
        handle.left_its_group();
        assert_eq!(monitor.report()[0].member, Some(false));
    }

    #[test]
    fn entries_that_are_gone_do_not_pile_up() {
        let monitor = Monitor::default();
        let kept = monitor.register("inbox:stock", "kept");
        for _ in 0..1_000 {
            drop(monitor.register("inbox:stock", "gone"));
        }
        assert_eq!(lock(&monitor.0.loops.entries).len(), 1);
        drop(kept);
    }
}
