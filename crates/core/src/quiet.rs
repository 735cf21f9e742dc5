//! Log lines that would come in floods: one now and then, which says how many were left out.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::monitor::lock;

/// Lets a line through once in a while and counts the others.
///
/// ```
/// use std::time::Duration;
///
/// use oncebox_core::quiet::Quiet;
///
/// let quiet = Quiet::new(Duration::from_secs(60));
/// assert_eq!(quiet.next_line(), Some(0));
/// assert_eq!(quiet.next_line(), None);
/// ```
#[derive(Debug)]
pub struct Quiet {
    every: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl Quiet {
    /// One line in this time.
    #[must_use]
    pub fn new(every: Duration) -> Self {
        Self { every, state: Mutex::default() }
    }

    /// How many lines were left out since the last one; `None` if this one is to be left out too.
    pub fn next_line(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = lock(&self.state);
        if state.last.is_some_and(|last| now < last + self.every) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_in_a_while_says_how_many_were_left_out() {
        let quiet = Quiet::new(Duration::from_secs(10));
        assert_eq!(quiet.next_line(), Some(0), "the first is never late");
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(3)).await;
            assert_eq!(quiet.next_line(), None);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(quiet.next_line(), Some(3));
        assert_eq!(quiet.next_line(), None);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(quiet.next_line(), Some(1));
    }
}
