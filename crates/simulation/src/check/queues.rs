//! Queues: nothing is acknowledged before it is settled, nothing gets lost, nobody waits for a stranger's retry, and what
//! ends the process is found.

use oncebox_core::source::{Answer, GivenBack, Why};

use crate::coverage::Event;
use crate::messages::Behaviour;
use crate::store::{Effect, ReceiptRow, Spot};
use crate::world::{Actor, Inner};

/// How long a message may take that nothing is wrong with, in a history where nothing else takes long.
const PATIENCE_MS: i64 = 10 * 60_000;

/// A sender whose message is given back tries again after at most this time.
const SENDER_WAITS_MS: i64 = 600_000;

impl Inner {
    /// The broker hears what became of a delivery.
    pub(crate) fn answered(&mut self, spot: Spot, channel: u64, delivery: i64, answer: &Answer) {
        let Some(seq) = self.broker.delivered(spot, channel, delivery) else {
            // The channel is gone, and with it the acknowledgement.
            self.saw(Event::AnswerLost);
            return;
        };
        match answer {
            Answer::GivenBack(given_back) => self.given_back(spot, seq, given_back),
            settled => {
                self.check_settled(spot, seq, settled);
                self.check_patience(spot, seq);
                self.broker.remove(spot, seq);
            }
        }
    }

    fn given_back(&mut self, spot: Spot, seq: i64, given_back: &GivenBack) {
        self.saw(Event::GivenBack);
        let Some(entry) = self.broker.entry(spot, seq) else { return };
        let (number, has_id) = (entry.number, entry.id.is_some());
        let behaviour = self.messages.get(number).map(|sent| sent.behaviour);
        let gives_up = given_back.why == Why::Rejected || given_back.reason.contains("process ended");
        let guilty = !has_id || matches!(behaviour, Some(Behaviour::Rejects));
        if given_back.why == Why::Rejected && !guilty {
            self.violate(format!("m{number} is rejected, but nobody has rejected it: {}", given_back.reason));
        }
        if gives_up {
            self.broker.taken_out.insert((spot, number));
            self.broker.remove(spot, seq);
            return;
        }
        let wait = if given_back.why == Why::Closing { 0 } else { self.rng.i64(0..SENDER_WAITS_MS) };
        let not_before = self.now_ms() + wait;
        self.broker.put_back(spot, seq, not_before);
    }

    /// What is acknowledged has its effect or its dead letter.
    fn check_settled(&mut self, spot: Spot, seq: i64, answer: &Answer) {
        let Some(entry) = self.broker.entry(spot, seq) else { return };
        let place = entry.held.map(|held| held.name(spot)).unwrap_or_default();
        if !self.is_settled_as(spot, entry.id.clone().unwrap_or(place)) {
            let (number, at) = (entry.number, spot.place);
            self.violate(format!(
                "c{} acknowledges m{number} of {at} as {answer:?} although it is not settled",
                spot.consumer
            ));
        }
    }

    /// Whoever waits for a retry holds up its key and nobody else.
    fn check_patience(&mut self, spot: Spot, seq: i64) {
        let Some(entry) = self.broker.entry(spot, seq) else { return };
        let waited = self.now_ms() - entry.held.map_or(self.now_ms(), |held| held.since_ms);
        if !self.config.patience || waited < PATIENCE_MS {
            return;
        }
        let slow = |number: u32| {
            self.messages.get(number).is_some_and(|sent| matches!(sent.behaviour, Behaviour::RetriesLater(_)))
        };
        let key = entry.key();
        let excused = slow(entry.number)
            || key.is_some_and(|key| {
                self.broker.keys.get(key).is_some_and(|numbers| numbers.iter().any(|n| slow(*n)))
            });
        if !excused {
            let number = entry.number;
            self.violate(format!(
                "m{number} waited {} s although only messages of other keys wait for their retry",
                waited / 1_000
            ));
        }
    }

    /// A message has ended a process.
    pub(crate) fn check_ends(&mut self, actor: Actor, number: u32) {
        // An operator's replay is a process of its own.
        if self.config.prefetch.is_none() || actor.process >= self.config.processes {
            return;
        }
        let published = self.broker.published.iter().filter(|((_, of), _)| *of == number);
        // Once for each copy, which nobody could know before, and then as often as the guard allows; once more if two
        // processes are at the same row and an attempt is withdrawn twice.
        let allowed: u32 = published.map(|(_, (copies, _))| copies + self.config.crash_limit + 1).sum();
        // An attempt of which nobody knows whether it was written down is not held against a message.
        let allowed = allowed + self.db.unanswered;
        let Some(sent) = self.messages.get_mut(number) else { return };
        sent.ended += 1;
        let ended = sent.ended;
        if ended > allowed {
            self.violate(format!(
                "m{number} has ended a process {ended} times, and {allowed} were enough to find it"
            ));
        }
    }

    /// A receipt goes. No copy that is still in a queue may need it, unless somebody else held it when the queue looked
    /// empty.
    pub(crate) fn check_purge_for_queues(&mut self, row: &ReceiptRow, keep: i64) {
        let queues = self.broker.queues.iter().filter(|(spot, _)| spot.consumer == row.of.consumer);
        let entries = queues.flat_map(|(spot, queue)| queue.entries.values().map(|entry| (*spot, entry)));
        let needed = entries
            .filter(|(_, entry)| entry.id.as_ref() == Some(&row.of.id) && !entry.unseen)
            .find(|(_, entry)| entry.appended_ms <= row.true_ms + keep);
        if let Some((spot, entry)) = needed {
            let (number, held) = (entry.number, entry.held);
            self.violate(format!(
                "the receipt of m{number} is purged, but a copy is still in {} (held: {held:?})",
                spot.place
            ));
        }
    }

    /// Whether this effect is of a copy that somebody held while somebody else saw the queue empty.
    pub(crate) fn is_unseen_copy(&self, effect: &Effect) -> bool {
        let spot = Spot { consumer: effect.consumer, place: effect.place };
        self.broker
            .entry(spot, effect.seq)
            .is_some_and(|entry| entry.unseen && self.config.prefetch.is_some())
    }

    /// Everything that was ever published is settled, or was taken out on purpose.
    pub(crate) fn queues_lost(&self) -> Vec<String> {
        let taken_out = &self.broker.taken_out;
        let published =
            self.broker.published.iter().filter(|((spot, number), _)| !taken_out.contains(&(*spot, *number)));
        // What has no id was looked at when it was acknowledged.
        let known = published.filter_map(|((spot, number), (_, id))| Some((*spot, *number, id.clone()?)));
        known
            .filter(|(spot, _, id)| !self.is_settled_as(*spot, id.clone()))
            .map(|(spot, number, _)| format!("m{number} of {} for c{}", spot.place, spot.consumer))
            .collect()
    }

    /// What is left in the queues, in words.
    pub(crate) fn queues_left(&self) -> Vec<String> {
        let stops = self.broker.stops.iter();
        let mut left: Vec<String> = stops
            .map(|((spot, process), (_, why))| format!("p{process} stands still at {}: {why}", spot.place))
            .collect();
        for (spot, queue) in self.broker.queues.iter().filter(|(_, queue)| !queue.entries.is_empty()) {
            let numbers: Vec<String> =
                queue.entries.values().map(|entry| format!("m{}", entry.number)).collect();
            left.push(format!("c{} has left in {}: {}", spot.consumer, spot.place, numbers.join(" ")));
        }
        left
    }
}
