//! Keys whose last request got no answer in time. They share one request at a time, and no more than a quarter of the time, so that
//! many of them cannot take all requests from the others. A state machine that is told what happened and when.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

/// So many keys are remembered; of more, those that were tried last are taken for others.
const MAX_KEYS: usize = 1000;
/// How often those that wait ask again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// After a request that took a second, so many seconds belong to the others.
const REST: u32 = 3;

/// A key, or an event without one, in eight bytes: two that are taken for one another only wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self(hasher.finish())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Slow {
    keys: Vec<Known>,
    under_way: Option<Key>,
    /// Until then the time belongs to the others.
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Known {
    key: Key,
    /// When it was tried last.
    tried: Instant,
    /// Until when it is expected, if it had to wait.
    expected: Instant,
}

impl Slow {
    /// Whether an event of this key may be sent; or how long it has to wait.
    pub(crate) fn enter(&mut self, now: Instant, key: Key) -> Result<(), Duration> {
        let Some(at) = self.keys.iter().position(|known| known.key == key) else { return Ok(()) };
        let tried = self.keys[at].tried;
        let rest = self.not_before.map(|at| at.saturating_duration_since(now)).unwrap_or_default();
        // Each in its turn: of those that wait, who was tried longest ago goes first.
        let is_before = |other: &Known| other.tried < tried && now < other.expected;
        if self.under_way.is_none() && rest.is_zero() && !self.keys.iter().any(is_before) {
            self.under_way = Some(key);
            return Ok(());
        }
        let wait = rest.max(ASK_AGAIN);
        self.keys[at].expected = now + wait + ASK_AGAIN;
        Err(wait)
    }

    /// The request ended. `hung`: it got no answer in time.
    pub(crate) fn ended(&mut self, now: Instant, key: Key, took: Duration, hung: bool) {
        if self.under_way == Some(key) {
            self.under_way = None;
            self.not_before = Some(now + took * REST);
        }
        self.keys.retain(|known| known.key != key);
        if hung && self.keys.len() < MAX_KEYS {
            self.keys.push(Known { key, tried: now, expected: now });
        }
    }

    /// Nobody waited for the request any more.
    pub(crate) fn dropped(&mut self, key: Key) {
        if self.under_way == Some(key) {
            self.under_way = None;
        }
    }

    /// The receiver is back: what was slow before says nothing any more.
    pub(crate) fn forget(&mut self) {
        self.keys.clear();
        self.not_before = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANG: Duration = Duration::from_secs(10);

    fn key(n: u32) -> Key {
        Key::of(&n.to_be_bytes())
    }

    #[test]
    fn keys_that_answer_are_not_held_up() {
        let (mut slow, now) = (Slow::default(), Instant::now());
        for n in 0..100 {
            assert_eq!(slow.enter(now, key(n)), Ok(()));
        }
        slow.ended(now, key(1), HANG, true);
        assert_eq!(slow.enter(now, key(2)), Ok(()));
        slow.ended(now, key(1), Duration::ZERO, false);
        assert_eq!((slow.enter(now, key(1)), slow.enter(now, key(1))), (Ok(()), Ok(())));
    }

    #[test]
    fn slow_keys_go_one_at_a_time_in_turns_and_leave_most_of_the_time_to_others() {
        let (mut slow, mut now) = (Slow::default(), Instant::now());
        let begin = now;
        for n in 0..5 {
            now += Duration::from_millis(1);
            slow.ended(now, key(n), HANG, true);
        }
        let (mut turns, mut busy) = (Vec::new(), Duration::ZERO);
        while turns.len() < 20 {
            now += Duration::from_millis(500);
            // The one with the lowest number always asks first.
            let entered: Vec<u32> = (0..5).filter(|n| slow.enter(now, key(*n)).is_ok()).collect();
            assert!(entered.len() <= 1, "{entered:?}");
            for n in entered {
                turns.push(n);
                assert!(slow.enter(now, key(n)).is_err(), "under way");
                now += HANG;
                busy += HANG;
                slow.ended(now, key(n), HANG, true);
            }
        }
        let each: Vec<usize> = (0..5).map(|n| turns.iter().filter(|turn| **turn == n).count()).collect();
        assert_eq!(each, [4; 5], "{turns:?}");
        assert!(busy * 3 < now - begin, "{busy:?} of {:?}", now - begin);
    }

    #[test]
    fn a_key_that_is_gone_keeps_nobody_waiting() {
        let (mut slow, now) = (Slow::default(), Instant::now());
        for n in 1..3 {
            slow.ended(now + Duration::from_millis(n.into()), key(n), HANG, true);
        }
        let now = now + Duration::from_millis(10);
        assert_eq!(slow.enter(now, key(1)), Ok(()));
        slow.dropped(key(1));
        assert_eq!(slow.enter(now, key(2)), Ok(()), "the other does not wait");
        assert_eq!(slow.enter(now, key(1)), Err(ASK_AGAIN));
        slow.dropped(key(2));
        assert_eq!(slow.enter(now, key(2)), Err(ASK_AGAIN), "the other comes first");
        let long_after = now + Duration::from_secs(60);
        assert_eq!(slow.enter(long_after, key(2)), Ok(()));
        slow.dropped(key(2));
        assert_eq!(slow.enter(long_after, key(2)), Ok(()), "nobody waited for it");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let (mut slow, now) = (Slow::default(), Instant::now());
        for n in 0..5000 {
            slow.ended(now, key(n), HANG, true);
        }
        assert_eq!(slow.keys.len(), MAX_KEYS);
        slow.forget();
        assert!(slow.keys.is_empty());
    }
}
