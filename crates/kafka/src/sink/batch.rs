//! One batch: what is sent together, and what became of each event.
//!
//! A broker refuses whole record batches, so an event may be refused only because of its neighbours. The events that are not
//! at the broker yet are then sent again, in their order and in smaller and smaller runs, until the one to blame is alone.

use std::collections::HashSet;

use oncebox_core::outbox::{Delivery, OutgoingEvent};
use rdkafka::error::RDKafkaErrorCode;

use super::failure::{is_own, of_event};
use super::reports::Report;

pub(super) struct Batch<'a> {
    events: &'a [OutgoingEvent],
    /// `None` until it is decided.
    fates: Vec<Option<Delivery>>,
    undecided: usize,
    /// The most events in the next run.
    most: usize,
}

impl<'a> Batch<'a> {
    pub(super) fn new(events: &'a [OutgoingEvent]) -> Self {
        Self { events, fates: vec![None; events.len()], undecided: events.len(), most: events.len() }
    }

    /// The places of the events to send next, in their order.
    pub(super) fn next_run(&self) -> Option<Vec<usize>> {
        let undecided = (0..self.fates.len()).filter(|at| self.fates[*at].is_none());
        let run: Vec<usize> = undecided.take(self.most).collect();
        (!run.is_empty()).then_some(run)
    }

    /// Takes in what became of a run. An error is a failure for which no event is to blame: the batch cannot go on now.
    pub(super) fn take_in(&mut self, run: &[usize], reports: &[Report]) -> Result<(), RDKafkaErrorCode> {
        let alone = run.len() == 1;
        let (mut own, mut other) = (false, None);
        for (at, report) in run.iter().zip(reports) {
            match *report {
                Report::Delivered => self.decide(*at, Delivery::Delivered),
                Report::Refused(code) => self.decide(*at, of_event(&self.events[*at], code)),
                Report::Failed(code) if alone && is_own(code) => {
                    self.decide(*at, of_event(&self.events[*at], code));
                }
                Report::Failed(code) if is_own(code) => own = true,
                Report::Failed(code) => other = Some(more_telling(other, code)),
            }
        }
        match other {
            // The failure of a neighbour has stopped the producer.
            _ if own => self.most = run.len() / 2,
            Some(code) => return Err(code),
            None => self.most = run.len().saturating_mul(2),
        }
        Ok(())
    }

    fn decide(&mut self, at: usize, fate: Delivery) {
        self.fates[at] = Some(fate);
        self.undecided -= 1;
    }

    /// Ends the batch with what is known: the undecided events are to be tried again.
    ///
    /// That keeps the order. A key has one partition, which confirms in order, so what is confirmed does not stand behind an
    /// undecided event of its key.
    pub(super) fn give_up(&mut self, error: &str) {
        let mut held = HashSet::new();
        for at in 0..self.events.len() {
            if self.fates[at].is_some() {
                continue;
            }
            let is_first = self.events[at].key().is_none_or(|key| held.insert(key));
            let retry = || Delivery::Retry { error: error.to_owned(), after: None };
            self.decide(at, if is_first { retry() } else { Delivery::Behind });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// How many events are not known to be at the broker.
    pub(super) fn undecided(&self) -> usize {
        self.undecided
    }

    pub(super) fn into_deliveries(self) -> Vec<Delivery> {
        self.fates.into_iter().flatten().collect()
    }
}

/// Most events of a batch fail only because one of them did.
fn more_telling(known: Option<RDKafkaErrorCode>, code: RDKafkaErrorCode) -> RDKafkaErrorCode {
    use RDKafkaErrorCode::{Fatal, PurgeInflight, PurgeQueue};
    known.filter(|known| !matches!(known, Fatal | PurgeInflight | PurgeQueue)).unwrap_or(code)
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

    fn events(count: i64) -> Vec<OutgoingEvent> {
        (0..count).map(|seq| event(seq, None)).collect()
    }

    /// A broker that takes up to `limit` events at once and never those in `bad`; all events share a partition.
    fn run_to_the_end(count: i64, limit: usize, bad: &[usize]) -> (Vec<usize>, Vec<Delivery>) {
        let events = events(count);
        let (mut batch, mut taken) = (Batch::new(&events), Vec::new());
        while let Some(run) = batch.next_run() {
            let refused = run.len() > limit || run.iter().any(|at| bad.contains(at));
            let report = if refused {
                Report::Failed(RDKafkaErrorCode::MessageSizeTooLarge)
            } else {
                taken.extend_from_slice(&run);
                Report::Delivered
            };
            batch.take_in(&run, &vec![report; run.len()]).expect("no other failure");
        }
        (taken, batch.into_deliveries())
    }

    #[test]
    fn only_the_event_to_blame_is_given_up_and_the_rest_keeps_its_order() {
        for bad in [vec![], vec![0], vec![99], vec![17, 18, 60]] {
            for limit in [1, 7, 100] {
                let (taken, fates) = run_to_the_end(100, limit, &bad);
                let good: Vec<usize> = (0..100).filter(|at| !bad.contains(at)).collect();
                assert_eq!(taken, good);
                for (at, fate) in fates.iter().enumerate() {
                    assert_eq!(matches!(fate, Delivery::Reject { .. }), bad.contains(&at), "{at}: {fate:?}");
                }
            }
        }
    }

    #[test]
    fn of_a_batch_that_is_given_up_each_key_is_held_once() {
        let keys = [Some("a"), Some("a"), None, Some("b"), Some("a"), None, Some("b")];
        let events: Vec<_> = (0..).zip(keys).map(|(seq, key)| event(seq, key)).collect();
        let mut batch = Batch::new(&events);
        let run = batch.next_run().expect("all");
        let mut reports = [Report::Failed(RDKafkaErrorCode::PurgeQueue); 7];
        reports[0] = Report::Delivered;
        assert!(batch.take_in(&run, &reports).is_err());
        batch.give_up("why");
        let retry = Delivery::Retry { error: "why".to_owned(), after: None };
        let (held, behind) = (|| retry.clone(), Delivery::Behind);
        let expected = [Delivery::Delivered, held(), held(), held(), behind.clone(), held(), behind];
        assert_eq!(batch.into_deliveries(), expected);
    }

    #[test]
    fn a_failure_that_no_event_is_to_blame_for_ends_the_batch() {
        use RDKafkaErrorCode::{Fatal, PurgeQueue, TopicAuthorizationFailed};
        let events = events(3);
        let mut batch = Batch::new(&events);
        let run = batch.next_run().expect("all");
        let reports =
            [Report::Delivered, Report::Failed(PurgeQueue), Report::Failed(TopicAuthorizationFailed)];
        assert_eq!(batch.take_in(&run, &reports), Err(TopicAuthorizationFailed));
        assert_eq!(batch.undecided(), 2);
        assert_eq!(more_telling(Some(TopicAuthorizationFailed), Fatal), TopicAuthorizationFailed);
    }
}
