//! What a queue has delivered to this process and is not answered yet, and what to tell the database about it.
//!
//! A queue has no position. Until when it is caught up is told by when it was seen to hold nothing more: once everything that
//! was delivered before is answered, everything that was sent to it by then is settled. But what is answered may still be in
//! the queue: an acknowledgement can get lost. So it counts only when the queue was asked once more; acknowledgements have
//! arrived before that question.

use std::collections::BTreeSet;
use std::sync::Mutex;

use tokio::time::Instant;

use super::progress::LogEnds;
use crate::clock::Clock;
use crate::mistake::mistaken;
use crate::monitor::lock;
use crate::source::{Answer, Answered};
use crate::store::{Cause, Duplicates};

/// The deliveries of one queue to this process.
#[derive(Debug)]
pub(crate) struct Deliveries {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeSet<i64>,
    last: Option<i64>,
    /// When the queue was seen to hold nothing behind a delivery.
    emptied: LogEnds,
    /// Until when everything is answered; and the last answer before that was known.
    unconfirmed: Option<(i64, Option<Instant>)>,
    last_answer: Option<Instant>,
    last_given_back: Option<Instant>,
    untold: Untold,
    told_caught_up_ms: Option<i64>,
}

/// What the database was not told yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Untold {
    pub(crate) applied: u64,
    pub(crate) duplicates: Duplicates,
    pub(crate) caught_up_ms: Option<i64>,
}

impl Deliveries {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// A record has arrived. False if its number does not lie above all earlier ones.
    pub(crate) fn receive(&self, delivery: i64) -> bool {
        let mut state = lock(&self.state);
        if state.last.is_some_and(|last| delivery <= last) {
            return false;
        }
        state.last = Some(delivery);
        state.open.insert(delivery)
    }

    /// It was not taken after all. False if somebody has answered it meanwhile.
    pub(crate) fn withdraw(&self, delivery: i64) -> bool {
        lock(&self.state).open.remove(&delivery)
    }

    /// How many are not answered.
    pub(crate) fn open(&self) -> usize {
        lock(&self.state).open.len()
    }

    /// Everything below this number is answered.
    pub(crate) fn first_open(&self) -> i64 {
        lock(&self.state).first_open()
    }

    /// The queue held nothing more when it was asked at this time.
    pub(crate) fn nothing_waits(&self, asked: Instant) {
        let mut state = lock(&self.state);
        state.confirm(asked);
        // It was ours when the queue was asked, and is there again.
        if state.last_given_back.is_some_and(|given_back| given_back >= asked) {
            return;
        }
        let end = state.past_all();
        state.emptied.saw(end, self.clock.ms_at(asked));
        state.look();
        state.confirm(asked);
    }

    /// These are answered.
    pub(crate) fn answered(&self, answers: &[Answered]) {
        lock(&self.state).answered(answers);
    }

    /// Those of them that nobody has answered before are answered. Leaves only those.
    pub(crate) fn answered_if_open(&self, answers: &mut Vec<Answered>) {
        let mut state = lock(&self.state);
        answers.retain(|one| state.open.contains(&one.delivery));
        if !answers.is_empty() {
            state.answered(answers);
        }
    }

    /// Takes what nobody will answer any more.
    pub(crate) fn take_open(&self) -> Vec<i64> {
        std::mem::take(&mut lock(&self.state).open).into_iter().collect()
    }

    /// What to tell the database, if it is news. It counts as told from now on.
    pub(crate) fn take_untold(&self) -> Option<Untold> {
        let mut state = lock(&self.state);
        let untold = std::mem::take(&mut state.untold);
        state.told_caught_up_ms = state.told_caught_up_ms.max(untold.caught_up_ms);
        (untold != Untold::default()).then_some(untold)
    }

    /// It could not be told.
    pub(crate) fn put_back(&self, untold: Untold) {
        let mut state = lock(&self.state);
        state.untold.applied += untold.applied;
        state.untold.duplicates += untold.duplicates;
        state.untold.caught_up_ms = state.untold.caught_up_ms.max(untold.caught_up_ms);
    }
}

impl State {
    fn answered(&mut self, answers: &[Answered]) {
        let now = Instant::now();
        self.last_answer = Some(now);
        for Answered { delivery, answer, cause } in answers {
            self.open.remove(delivery);
            match answer {
                Answer::Applied => self.untold.applied += 1,
                Answer::Duplicate | Answer::Differs => {
                    self.untold.duplicates.add(cause.unwrap_or(Cause::Unknown), 1);
                }
                Answer::Parked | Answer::Filtered => {}
                // It will be sent again, so the queue was not done with when it was seen to be empty.
                Answer::GivenBack(_) => {
                    self.last_given_back = Some(now);
                    self.emptied.forget();
                }
            }
        }
        self.look();
    }

    fn first_open(&self) -> i64 {
        self.open.first().copied().unwrap_or_else(|| self.past_all())
    }

    fn past_all(&self) -> i64 {
        self.last.map_or(i64::MIN, |last| last.saturating_add(1))
    }

    /// Everything below the lowest open delivery is answered.
    fn look(&mut self) {
        let next = if mistaken("EmptyIsCaughtUp") { self.past_all() } else { self.first_open() };
        self.emptied.reached(next);
        let known = self.told_caught_up_ms.max(self.untold.caught_up_ms);
        let caught_up = self.emptied.if_reached(next).filter(|ms| Some(*ms) > known);
        // The older one stays: if it were replaced each time, none would ever be confirmed.
        self.unconfirmed = self.unconfirmed.or(caught_up.map(|ms| (ms, self.last_answer)));
        if mistaken("AnsweredIsCaughtUp") {
            self.untold.caught_up_ms = self.untold.caught_up_ms.max(caught_up);
        }
    }

    /// The queue was asked at this time, and has every acknowledgement of what was answered before.
    fn confirm(&mut self, asked: Instant) {
        let confirmed = self.unconfirmed.take_if(|(_, since)| since.is_none_or(|since| since < asked));
        self.untold.caught_up_ms = self.untold.caught_up_ms.max(confirmed.map(|(ms, _)| ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{GivenBack, Why};
    use std::time::Duration;

    fn applied(delivery: i64) -> Answered {
        Answered::new(delivery, Answer::Applied)
    }

    #[test]
    fn a_queue_is_caught_up_once_everything_before_the_look_is_answered() {
        let deliveries = Deliveries::new(Clock::system());
        assert!(deliveries.receive(1) && deliveries.receive(2) && !deliveries.receive(2));
        deliveries.nothing_waits(Instant::now());
        assert_eq!(deliveries.take_untold(), None, "two are open");
        deliveries.answered(&[applied(2)]);
        assert_eq!(deliveries.take_untold().and_then(|untold| untold.caught_up_ms), None);
        assert!(deliveries.receive(3));
        deliveries.answered(&[applied(1)]);
        let untold = deliveries.take_untold().expect("one was applied");
        assert_eq!((untold.applied, deliveries.open()), (1, 1));
        assert_eq!(untold.caught_up_ms, None, "its acknowledgement may have got lost");
        deliveries.nothing_waits(Instant::now() + Duration::from_millis(1));
        let untold = deliveries.take_untold().expect("the queue has heard");
        assert!(untold.caught_up_ms.is_some(), "what came after the first look does not count");
        assert_eq!(deliveries.take_untold(), None, "the database knows");
    }

    #[test]
    fn a_look_that_was_asked_for_before_something_was_given_back_says_nothing() {
        let deliveries = Deliveries::new(Clock::system());
        assert!(deliveries.receive(1));
        let asked = Instant::now();
        let given_back = Answer::GivenBack(GivenBack::new(Why::Unavailable, "away"));
        deliveries.answered(&[Answered::new(1, given_back)]);
        deliveries.nothing_waits(asked);
        deliveries.nothing_waits(asked);
        assert_eq!(deliveries.take_untold(), None);
    }

    #[test]
    fn an_empty_queue_is_caught_up_at_once() {
        let deliveries = Deliveries::new(Clock::system());
        deliveries.nothing_waits(Instant::now());
        assert!(deliveries.take_untold().is_some_and(|untold| untold.caught_up_ms.is_some()));
    }

    #[test]
    fn what_could_not_be_told_is_told_later() {
        let deliveries = Deliveries::new(Clock::system());
        assert!(deliveries.receive(1));
        deliveries.answered(&[applied(1)]);
        let untold = deliveries.take_untold().expect("one was applied");
        deliveries.put_back(untold);
        assert_eq!(deliveries.take_untold(), Some(untold));
    }

    #[test]
    fn what_is_given_back_counts_as_nothing() {
        let deliveries = Deliveries::new(Clock::system());
        assert!(deliveries.receive(7) && deliveries.receive(8));
        deliveries.nothing_waits(Instant::now());
        let given_back = Answer::GivenBack(GivenBack::new(Why::Unavailable, "away"));
        deliveries.answered(&[Answered::new(7, given_back)]);
        assert_eq!(deliveries.take_open(), [8]);
        assert_eq!((deliveries.open(), deliveries.take_untold()), (0, None));
    }
}
