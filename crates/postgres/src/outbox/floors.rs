//! Where a look into the outbox may begin, while somebody keeps PostgreSQL from cleaning up.
//!
//! A transaction that stays open keeps the index entries of events that were published since. Every look from the beginning walks over
//! all of them. So when looks get slow, and only then, a floor is remembered for each topic and shard: below it no event is ready,
//! and none will be. It is a hint and no cursor: a look from the beginning comes again and again, finds what an operator has
//! made ready anew, and forgets the floors.
//!
//! A transaction that commits late may hold a lower number than one that was published, and may stand before a later event of its
//! key. So a floor never passes a number that is not *decided*: whoever writes events locks the table first (every INSERT takes a
//! ROW EXCLUSIVE lock) and keeps it to the end. Once all have ended that had the lock when a number was seen, every lower
//! number is committed or rolled back. Whatever goes wrong with the database, all of it is forgotten: behind the same name may be
//! another server, whose numbers are older.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A look from the beginning that takes longer than this is slow, and one that takes less is quick again.
const SLOW: Duration = Duration::from_millis(50);
const QUICK: Duration = Duration::from_millis(20);
/// How often there is a look from the beginning all the same; and it is to cost at most a tenth of the time.
const FULL_LOOK_INTERVAL: Duration = Duration::from_secs(5);
const FULL_LOOK_SHARE: u32 = 10;
/// How often is asked who writes events.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// More topics than this are found by looks from the beginning only.
const MAX_TOPICS: usize = 1024;

/// How the transactions that are prepared are called, all of them.
const PREPARED: &str = "-1/";

/// What a store remembers of its looks.
#[derive(Debug, Default)]
pub(crate) struct Floors(Mutex<Option<Slow>>);

#[derive(Debug)]
struct Slow {
    /// Every event with this number or a lower one is committed or rolled back.
    decided: i64,
    /// The highest number that was read.
    seen: i64,
    /// That number at an earlier time, and who had the lock then.
    watched: Option<(i64, HashSet<String>)>,
    next_watch: Instant,
    next_full: Instant,
    floors: HashMap<String, HashMap<u16, i64>>,
}

/// How to look for what is ready.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// From the beginning. Everything up to this number was decided before.
    Full(i64),
    /// These topics and shards, each from its floor on.
    Known(Vec<(String, u16, i64)>),
}

impl Floors {
    fn state(&self) -> MutexGuard<'_, Option<Slow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How to look now.
    pub(super) fn look(&self, shards: &[u16], now: Instant) -> Look {
        let state = self.state();
        match state.as_ref() {
            None => Look::Full(0),
            // While nothing is decided there is no floor to begin at.
            Some(slow) if slow.decided == 0 || now >= slow.next_full => Look::Full(slow.decided),
            Some(slow) => {
                let pairs = slow.floors.iter().flat_map(|(topic, floors)| {
                    let floor = |shard: &u16| floors.get(shard).copied().unwrap_or(0);
                    shards.iter().map(move |shard| (topic.clone(), *shard, floor(shard)))
                });
                Look::Known(pairs.collect())
            }
        }
    }

    /// A look from the beginning of these shards took this long and found all of these, each with the number of its first ready
    /// event if it has one.
    pub(super) fn looked(
        &self,
        decided: i64,
        shards: &[u16],
        found: &[(String, u16, Option<i64>)],
        took: Duration,
        now: Instant,
    ) {
        let mut state = self.state();
        if took < if state.is_some() { QUICK } else { SLOW } {
            *state = None;
            return;
        }
        let slow = state.get_or_insert_with(|| Slow {
            decided: 0,
            seen: 0,
            watched: None,
            next_watch: now,
            next_full: now,
            floors: HashMap::new(),
        });
        // One that knew of nothing decided has found no floors.
        let rest = if decided == 0 { Duration::ZERO } else { FULL_LOOK_INTERVAL.max(took * FULL_LOOK_SHARE) };
        slow.next_full = now + rest;
        slow.seen = found.iter().filter_map(|(.., seq)| *seq).fold(slow.seen, i64::max);
        for (topic, ..) in found {
            if slow.floors.len() < MAX_TOPICS && !slow.floors.contains_key(topic) {
                slow.floors.insert(topic.clone(), HashMap::new());
            }
        }
        // Unless all was forgotten meanwhile.
        let decided = decided.min(slow.decided);
        // What it found is below no floor. Where it found nothing, nothing that was decided before is ready.
        let first = |(topic, shard, seq): &'_ (String, u16, Option<i64>)| {
            seq.map(|seq| ((topic.clone(), *shard), seq))
        };
        let firsts: HashMap<(String, u16), i64> = found.iter().filter_map(first).collect();
        for (topic, floors) in &mut slow.floors {
            for shard in shards {
                let first = firsts.get(&(topic.clone(), *shard));
                let floor = first.map_or(decided, |seq| decided.min(seq - 1));
                floors.insert(*shard, floor);
            }
        }
    }

    /// Where to read from in each of these shards, and up to where everything is decided.
    pub(super) fn of(&self, topic: &str, shards: &[i32]) -> (Vec<i64>, i64) {
        let state = self.state();
        let floors = state.as_ref().and_then(|slow| slow.floors.get(topic));
        let floor = |shard: &i32| {
            let shard = u16::try_from(*shard).unwrap_or_default();
            floors.and_then(|floors| floors.get(&shard)).copied().unwrap_or(0)
        };
        (shards.iter().map(floor).collect(), state.as_ref().map_or(0, |slow| slow.decided))
    }

    /// The next events of these shards are these, by number and shard, in the order of their numbers. `decided` is from before
    /// they were read.
    pub(super) fn read(&self, topic: &str, shards: &[i32], decided: i64, events: &[(i64, u16)]) {
        let mut state = self.state();
        let (Some(slow), Some((last, _))) = (state.as_mut(), events.last()) else { return };
        slow.seen = slow.seen.max(*last);
        let Some(floors) = slow.floors.get_mut(topic) else { return };
        for shard in shards.iter().filter_map(|shard| u16::try_from(*shard).ok()) {
            let first = events.iter().find(|(_, of)| *of == shard).map(|(seq, _)| seq - 1);
            // A shard without any has none up to the last one that was read.
            floors.insert(shard, first.unwrap_or(*last).min(decided).min(slow.decided));
        }
    }

    /// Whether to ask who writes events, and the highest number that was read before.
    pub(super) fn wants_watch(&self, now: Instant) -> Option<i64> {
        let mut state = self.state();
        let slow = state.as_mut().filter(|slow| now >= slow.next_watch && slow.seen > 0)?;
        slow.next_watch = now + WATCH_INTERVAL;
        Some(slow.seen)
    }

    /// These transactions write events now, and `seen` was read before.
    pub(super) fn watched(&self, seen: i64, writers: HashSet<String>) {
        let mut state = self.state();
        let Some(slow) = state.as_mut() else { return };
        // One that is prepared for two phases has changed its name since, and stays.
        if writers.iter().any(|writer| writer.starts_with(PREPARED)) {
            return;
        }
        match &slow.watched {
            Some((earlier, then)) if then.is_disjoint(&writers) => slow.decided = slow.decided.max(*earlier),
            Some(_) => return,
            None => {}
        }
        slow.watched = Some((seen, writers));
    }

    /// Nothing is known any more.
    pub(super) fn forget(&self) {
        *self.state() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARDS: [u16; 2] = [0, 1];

    fn writers(names: &[&str]) -> HashSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn slow(floors: &Floors, found: &[(u16, i64)], now: Instant) {
        let found: Vec<_> = found.iter().map(|(shard, seq)| ("t".to_owned(), *shard, Some(*seq))).collect();
        let decided = floors.of("t", &[]).1;
        floors.looked(decided, &SHARDS, &found, Duration::from_millis(200), now);
    }

    fn both(floors: &Floors) -> Vec<i64> {
        floors.of("t", &[0, 1]).0
    }

    #[test]
    fn quick_looks_begin_at_the_beginning() {
        let (floors, now) = (Floors::default(), Instant::now());
        floors.looked(0, &SHARDS, &[("t".to_owned(), 0, Some(7))], Duration::from_millis(5), now);
        assert_eq!(floors.look(&SHARDS, now), Look::Full(0));
        assert_eq!(floors.of("t", &[0, 1]), (vec![0, 0], 0));
    }

    #[test]
    fn a_floor_passes_nothing_that_may_still_commit() {
        let (floors, now) = (Floors::default(), Instant::now());
        slow(&floors, &[(0, 1), (1, 2)], now);
        floors.read("t", &[0, 1], 0, &[(10, 0), (11, 1), (12, 0)]);
        assert_eq!(both(&floors), [0, 0], "nothing is decided");
        // A transaction that may hold the number 5 is open.
        assert_eq!(floors.wants_watch(now), Some(12));
        floors.watched(12, writers(&["3/7"]));
        floors.watched(40, writers(&["3/7", "4/1"]));
        floors.read("t", &[0, 1], floors.of("t", &[]).1, &[(50, 0)]);
        assert_eq!(both(&floors), [0, 0]);
        floors.watched(45, writers(&["-1/900"]));
        assert_eq!(floors.of("t", &[]).1, 0, "it is only prepared");
        // It has ended; others that began since hold higher numbers.
        floors.watched(50, writers(&["4/1"]));
        let decided = floors.of("t", &[]).1;
        assert_eq!(decided, 12);
        floors.read("t", &[0, 1], decided, &[(60, 0)]);
        assert_eq!(both(&floors), [12, 12]);
    }

    #[test]
    fn an_event_that_is_not_published_holds_its_floor() {
        let (floors, now) = (Floors::default(), Instant::now());
        slow(&floors, &[(0, 1), (1, 2)], now);
        floors.read("t", &[0, 1], 0, &[(100, 0)]);
        floors.watched(100, writers(&[]));
        floors.watched(100, writers(&[]));
        assert_eq!(floors.of("t", &[]).1, 100);
        // It is read again, because nobody took it.
        floors.read("t", &[0, 1], 100, &[(7, 1), (100, 0)]);
        assert_eq!(both(&floors), [99, 6]);
    }

    #[test]
    fn looks_from_the_beginning_come_again_and_forget_the_floors_of_what_they_find() {
        let (floors, now) = (Floors::default(), Instant::now());
        slow(&floors, &[(0, 1), (1, 2)], now);
        floors.read("t", &[0, 1], 0, &[(100, 0)]);
        floors.watched(100, writers(&[]));
        floors.watched(100, writers(&[]));
        floors.read("t", &[0, 1], 100, &[(200, 0), (201, 1)]);
        assert_eq!(both(&floors), [100, 100]);
        let known = |floor| SHARDS.map(|shard| ("t".to_owned(), shard, floor)).to_vec();
        slow(&floors, &[(0, 200), (1, 201)], now);
        assert_eq!(floors.look(&SHARDS, now), Look::Known(known(100)));
        let later = now + FULL_LOOK_INTERVAL;
        assert_eq!(floors.look(&SHARDS, later), Look::Full(100));
        // An operator has made an event with a low number of shard 0 ready again.
        slow(&floors, &[(0, 3)], later);
        assert_eq!(both(&floors), [2, 100]);
        floors.forget();
        assert_eq!(floors.look(&SHARDS, later), Look::Full(0));
    }
}
