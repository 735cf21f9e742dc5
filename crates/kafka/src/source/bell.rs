//! Who has something for the reader: so that it looks at those, and not at all partitions whenever something happens.
//!
//! A bell is rung when a record arrives in a queue that was empty, when the engine owns a position, and when a stream stands
//! still. It stays rung until the reader has looked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;

use crate::ends::Place;

/// The bells that were rung, and the thread that they wake.
#[derive(Debug)]
pub(super) struct Bells {
    rung: Mutex<Vec<Place>>,
    reader: Thread,
}

impl Bells {
    /// Bells that wake this thread.
    pub(super) fn of_this_thread() -> Arc<Self> {
        Arc::new(Self { rung: Mutex::default(), reader: std::thread::current() })
    }

    /// The bell of a partition.
    pub(super) fn bell(self: &Arc<Self>, place: Place) -> Arc<Bell> {
        Arc::new(Bell { bells: Arc::clone(self), place, rung: AtomicBool::new(false) })
    }

    /// Wakes the thread for something that is no partition's.
    pub(super) fn wake(&self) {
        self.reader.unpark();
    }

    /// Those that were rung since the last time.
    pub(super) fn take(&self) -> Vec<Place> {
        std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The bell of one partition under one assignment.
#[derive(Debug)]
pub(super) struct Bell {
    bells: Arc<Bells>,
    place: Place,
    rung: AtomicBool,
}

impl Bell {
    /// There is something to look at.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            let place = (Arc::clone(&self.place.0), self.place.1);
            self.bells.rung.lock().unwrap_or_else(PoisonError::into_inner).push(place);
            self.bells.wake();
        }
    }

    /// The reader looks now: what comes later rings again.
    pub(super) fn quieten(&self) {
        // Not a mere store: whoever found it rung has put something there before, and that must be seen now.
        self.rung.swap(false, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_is_heard_once_until_it_is_looked_at() {
        let bells = Bells::of_this_thread();
        let bell = bells.bell(("t".into(), 3));
        bell.ring();
        bell.ring();
        assert_eq!(bells.take(), [("t".into(), 3)]);
        bell.ring();
        assert!(bells.take().is_empty(), "nobody has looked");
        bell.quieten();
        bell.ring();
        assert_eq!(bells.take().len(), 1);
        std::thread::park_timeout(std::time::Duration::from_secs(60));
    }
}
