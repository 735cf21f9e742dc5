//! One batch: what is sent together, and what became of each event.
//!
//! A batch is sent in rounds. A round holds at most one event of a key, and the next begins when all of a round are confirmed: of
//! two events of a key that are on their way together the first may be refused and the second not, and then they would arrive in
//! the wrong order. Events without a key wait for nobody.

use std::collections::HashSet;

use oncebox_core::outbox::{Delivery, OutgoingEvent};

/// The most events that are on their way at once.
const MAX_IN_FLIGHT: usize = 1_000;

pub(super) struct Batch<'a> {
    events: &'a [OutgoingEvent],
    /// `None` until it is decided.
    fates: Vec<Option<Delivery>>,
    /// Keys that an event of this batch holds back.
    held: HashSet<&'a [u8]>,
    /// The most events in the next round.
    most: usize,
    delivered: usize,
}

impl<'a> Batch<'a> {
    pub(super) fn new(events: &'a [OutgoingEvent]) -> Self {
        let fates = vec![None; events.len()];
        Self { events, fates, held: HashSet::new(), most: MAX_IN_FLIGHT, delivered: 0 }
    }

    /// The places of the events to send next, in their order.
    pub(super) fn next_round(&self) -> Option<Vec<usize>> {
        let mut keys = HashSet::new();
        let undecided = (0..self.fates.len()).filter(|at| self.fates[*at].is_none());
        let ready = undecided.filter(|at| match self.events[*at].key() {
            Some(key) => !self.held.contains(key) && keys.insert(key),
            None => true,
        });
        let round: Vec<usize> = ready.take(self.most).collect();
        (!round.is_empty()).then_some(round)
    }

    /// Decides what became of an event. One that is to be tried again holds back its key.
    pub(super) fn decide(&mut self, at: usize, fate: Delivery) {
        match &fate {
            Delivery::Delivered => self.delivered += 1,
            Delivery::Retry { .. } => self.held.extend(self.events[at].key()),
            _ => {}
        }
        self.fates[at] = Some(fate);
    }

    /// A round went well: the next one may be larger.
    pub(super) fn grow(&mut self) {
        self.most = self.most.saturating_mul(2).min(MAX_IN_FLIGHT);
    }

    /// The broker refuses something in a round of this size, and does not say what. True if it can be found in smaller rounds.
    pub(super) fn shrink(&mut self, round: usize) -> bool {
        self.most = (round / 2).max(1);
        round > 1
    }

    /// How many events are not known to be at the broker.
    pub(super) fn missing(&self) -> usize {
        self.events.len() - self.delivered
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn has_delivered(&self) -> bool {
        self.delivered > 0
    }

    /// What became of each event. Those that are undecided are to be tried again, for this reason.
    pub(super) fn into_deliveries(mut self, undecided: &str) -> Vec<Delivery> {
        for at in 0..self.events.len() {
            if self.fates[at].is_none() {
                let behind = self.events[at].key().is_some_and(|key| self.held.contains(key));
                let retry = || Delivery::Retry { error: undecided.to_owned(), after: None };
                self.decide(at, if behind { Delivery::Behind } else { retry() });
            }
        }
        self.fates.into_iter().flatten().collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use oncebox_core::message::Headers;
    use oncebox_core::store::StoredEvent;

    use super::*;

    pub(in crate::sink) fn event(seq: i64, key: Option<&'static str>) -> OutgoingEvent {
        let stored = StoredEvent {
            seq,
            id: uuid::Uuid::from_u128(seq as u128),
            topic: "t".into(),
            key: key.map(|key| key.as_bytes().into()),
            payload: None,
            headers: Headers::new(),
            created_at_ms: 1,
            deliver_at_ms: None,
            causation_id: None,
            attempts: 0,
        };
        OutgoingEvent::new(stored, Arc::from("test"))
    }

    fn events(keys: &[Option<&'static str>]) -> Vec<OutgoingEvent> {
        (0..).zip(keys).map(|(seq, key)| event(seq, *key)).collect()
    }

    fn retry(error: &str) -> Delivery {
        Delivery::Retry { error: error.to_owned(), after: None }
    }

    #[test]
    fn a_round_holds_one_event_of_a_key() {
        let events = events(&[Some("a"), Some("a"), None, Some("b"), None, Some("a")]);
        let mut batch = Batch::new(&events);
        let mut rounds = Vec::new();
        while let Some(round) = batch.next_round() {
            round.iter().for_each(|at| batch.decide(*at, Delivery::Delivered));
            rounds.push(round);
        }
        assert_eq!(rounds, [vec![0, 2, 3, 4], vec![1], vec![5]]);
        assert_eq!(batch.into_deliveries(""), vec![Delivery::Delivered; 6]);
    }

    #[test]
    fn behind_an_event_that_failed_its_key_waits_and_behind_one_that_was_given_up_it_does_not() {
        let events = events(&[Some("a"), Some("b"), Some("a"), Some("b"), None]);
        let mut batch = Batch::new(&events);
        batch.decide(0, retry("why"));
        batch.decide(1, Delivery::Reject { error: "why".to_owned() });
        assert_eq!(batch.next_round(), Some(vec![3, 4]));
        batch.decide(3, Delivery::Delivered);
        batch.decide(4, Delivery::Delivered);
        assert_eq!((batch.next_round(), batch.missing()), (None, 3));
        let fates = batch.into_deliveries("");
        assert_eq!((&fates[0], &fates[2]), (&retry("why"), &Delivery::Behind));
    }

    #[test]
    fn of_a_batch_that_is_given_up_each_key_is_held_once() {
        let events = events(&[Some("a"), Some("a"), None, Some("b"), Some("a"), None, Some("b")]);
        let mut batch = Batch::new(&events);
        batch.decide(0, Delivery::Delivered);
        let (held, behind) = (|| retry("why"), Delivery::Behind);
        let expected = [Delivery::Delivered, held(), held(), held(), behind.clone(), held(), behind];
        assert_eq!(batch.into_deliveries("why"), expected);
    }

    #[test]
    fn the_one_that_the_broker_refuses_is_found() {
        let events = events(&[None; 100]);
        for bad in [0, 17, 99] {
            let mut batch = Batch::new(&events);
            while let Some(round) = batch.next_round() {
                if !round.contains(&bad) {
                    round.iter().for_each(|at| batch.decide(*at, Delivery::Delivered));
                    batch.grow();
                } else if !batch.shrink(round.len()) {
                    batch.decide(bad, Delivery::Reject { error: "too large".to_owned() });
                }
            }
            let fates = batch.into_deliveries("");
            let refused: Vec<usize> = (0..100).filter(|at| fates[*at] != Delivery::Delivered).collect();
            assert_eq!(refused, [bad]);
        }
    }
}
