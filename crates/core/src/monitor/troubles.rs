//! Troubles, by the name of the loops that have them. A thousand lanes whose database is away are one trouble, with few lines
//! in the log.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing::info;

use super::lock;

#[derive(Debug, Default)]
pub(super) struct Troubles(Mutex<BTreeMap<String, Trouble>>);

#[derive(Debug)]
struct Trouble {
    since: Instant,
    /// How many loops have it now.
    loops: usize,
    failures: u64,
}

impl Troubles {
    /// A loop of this name fails; `begins` if it was well before. True at the first failure of this trouble, the second, the
    /// fourth and so on.
    pub(super) fn failed(&self, name: &str, begins: bool) -> bool {
        let mut troubles = lock(&self.0);
        if !troubles.contains_key(name) {
            let trouble = Trouble { since: Instant::now(), loops: 0, failures: 0 };
            troubles.insert(name.to_owned(), trouble);
        }
        troubles.get_mut(name).is_some_and(|trouble| {
            trouble.loops += usize::from(begins);
            trouble.failures += 1;
            trouble.failures.is_power_of_two()
        })
    }

    /// One of the loops is well again, or gone. After the last one that is said in these words.
    pub(super) fn over(&self, name: &str, words: Option<&str>) {
        let mut troubles = lock(&self.0);
        let Some(trouble) = troubles.get_mut(name) else { return };
        trouble.loops = trouble.loops.saturating_sub(1);
        if trouble.loops > 0 {
            return;
        }
        let ended = troubles.remove(name);
        drop(troubles);
        if let (Some(Trouble { since, failures, .. }), Some(words)) = (ended, words) {
            info!(name, failures, "{words} after {}", shown(since.elapsed()));
        }
    }
}

/// For people: seconds, and below ten of them a digit more.
fn shown(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds => humantime::format_duration(Duration::from_secs(seconds)).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_of_many_loops_is_told_a_few_times() {
        let troubles = Troubles::default();
        let told = (0..1000).filter(|_| troubles.failed("inbox:stock", true)).count();
        assert_eq!(told, 10);
        assert!(troubles.failed("inbox:mail", true), "another one");
        for _ in 0..999 {
            troubles.over("inbox:stock", Some("goes on"));
        }
        assert!(!troubles.failed("inbox:stock", false), "one loop still has it");
        troubles.over("inbox:stock", Some("goes on"));
        assert!(troubles.failed("inbox:stock", true), "a new one");
    }

    #[test]
    fn durations_are_for_people() {
        assert_eq!(shown(Duration::from_millis(1_230)), "1.2 s");
        assert_eq!(shown(Duration::from_millis(12_900)), "12 s");
        assert_eq!(shown(Duration::from_secs(3_725)), "1h 2m 5s");
    }
}
