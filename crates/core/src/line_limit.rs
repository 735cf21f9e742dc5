//! A bound on log lines: a thousand messages with the same fault are a few lines and a count.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::monitor::lock;

/// So many lines are written within a window; the rest are counted.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// A bound on the log lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct LineLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    window_began: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LineLimit {
    /// Whether a line may be written now, and how many were left out since the last one.
    pub(crate) fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.0);
        if state.window_began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            state.window_began = Some(now);
            state.written = 0;
        }
        if state.written == LINES {
            state.left_out += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let (limit, now) = (LineLimit::default(), Instant::now());
        let written = (0..1000).filter(|_| limit.admit_at(now) == Some(0)).count();
        assert_eq!(written, 10);
        assert_eq!(limit.admit_at(now + WINDOW / 2), None);
        assert_eq!(limit.admit_at(now + WINDOW), Some(991), "the next line says how many are missing");
        assert_eq!(limit.admit_at(now + WINDOW), Some(0));
    }
}
