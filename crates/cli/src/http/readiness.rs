//! Whether the process takes part in the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oncebox_core::monitor::Monitor;

/// Everything is set up, and every source that has a group, or a queue, is a member of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Readiness {
    monitor: Monitor,
    set_up: Arc<AtomicBool>,
    /// The consumers whose source has to be a member.
    members: Arc<[String]>,
}

impl Readiness {
    pub(crate) fn new(monitor: &Monitor, members: impl IntoIterator<Item = String>) -> Self {
        Self { monitor: monitor.clone(), set_up: Arc::default(), members: members.into_iter().collect() }
    }

    /// Whether everything is set up.
    pub(crate) fn set_up(&self, is_set_up: bool) {
        self.set_up.store(is_set_up, Ordering::Relaxed);
    }

    /// What is missing, if anything is.
    pub(crate) fn missing(&self) -> Option<String> {
        if !self.set_up.load(Ordering::Relaxed) {
            return Some("starting or stopping".to_owned());
        }
        let reports = self.monitor.report();
        let is_member = |consumer: &&String| {
            let name = format!("source:{consumer}");
            reports.iter().any(|report| report.name == name && report.member == Some(true))
        };
        let missing: Vec<&str> =
            self.members.iter().filter(|consumer| !is_member(consumer)).map(String::as_str).collect();
        (!missing.is_empty())
            .then(|| format!("not members of their groups, or not reading: {}", missing.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_a_member_yet_is_named() {
        let monitor = Monitor::default();
        let ready = Readiness::new(&monitor, ["stock".to_owned(), "mail".to_owned()]);
        assert_eq!(ready.missing().as_deref(), Some("starting or stopping"));
        ready.set_up(true);
        let missing = ready.missing().unwrap();
        assert!(missing.ends_with("reading: stock, mail"), "a source that has not said anything: {missing}");
        let sources = ["source:stock", "source:mail"].map(|name| monitor.register(name, ""));
        sources[0].member(true);
        sources[1].member(false);
        assert!(ready.missing().unwrap().ends_with("reading: mail"));
        sources[1].member(true);
        assert_eq!(ready.missing(), None);
        sources[0].member(false);
        assert!(ready.missing().is_some(), "it was thrown out of its group");
    }
}
