//! Begins to read partitions, once the engine owns their positions and the broker has said what it still has.
//!
//! The bell of a partition tells that its position is there. Then it is asked about ([`super::ask`]), together with all others
//! that are as far; the answers come broker by broker, and those that are answered begin together.

use std::time::Instant;

use oncebox_core::backoff;
use oncebox_core::source::{Known, Start, StartError, start_at};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use tracing::{debug, error, warn};

use super::ask::{About, Asked, Seen};
use super::assignment::{fetch_started, split_queue};
use super::gate::Passage;
use super::partition::{Partition, Phase};
use super::reader::Reader;
use crate::ends::Place;

impl Reader {
    /// Asks about those of these partitions that can begin, and about those that could not before and are due again.
    pub(super) fn ask_to_begin(&mut self, places: Vec<Place>) {
        let (mut ready, mut shut) = (Vec::new(), Vec::new());
        for place in places.into_iter().chain(self.agenda.begins_due()) {
            let Some(partition) = self.partitions.get_mut(&place.0, place.1).filter(|p| p.is_ready()) else {
                continue;
            };
            match self.gate.as_ref().map_or(Passage::Open, |gate| gate.passage(&place.0)) {
                Passage::Open => {
                    partition.asked = true;
                    ready.push(partition.question());
                }
                Passage::Undecided => shut.push((place, None)),
                Passage::Refused(reason) => shut.push((place, Some(reason))),
            }
        }
        for (place, reason) in shut {
            self.try_again(&place, reason);
        }
        self.asker.ask(About::Begin, ready);
    }

    /// Begins with the partitions that the broker has told about. What fails is tried again later; nothing here ends the loop.
    pub(super) fn begin_with(&mut self, seen: Vec<(Asked, KafkaResult<Seen>)>) {
        let mut started = Vec::new();
        for (asked, seen) in seen {
            let Some(partition) = self.partitions.asked(&asked).filter(|p| p.is_waiting()) else { continue };
            partition.asked = false;
            let elsewhere = seen.as_ref().is_ok_and(|seen| seen.committed.is_some_and(|commit| !commit.ours));
            let known = seen.and_then(|seen| known(partition, seen));
            let known = known.and_then(|known| split_queue(&self.consumer, partition).map(|()| known));
            match known {
                Ok(known) => {
                    partition.high = Some(known.high);
                    let next = known.stored.next_offset;
                    match start_at(known, self.intake.start_policy()) {
                        Ok(start) => {
                            let set_back = elsewhere && Some(start.offset) < next;
                            partition.start = Some(Start { set_back, ..start });
                            started.push(asked.place);
                        }
                        Err(reason) => stop(self.intake.consumer(), partition, &reason),
                    }
                }
                Err(e) => self.try_again(&asked.place, Some(in_words(&e))),
            }
        }
        if !started.is_empty() {
            self.fetch(started);
        }
    }

    fn fetch(&mut self, started: Vec<Place>) {
        let begun = fetch_started(&self.consumer, &self.partitions, &started);
        for place in started {
            let Some(partition) = self.partitions.get_mut(&place.0, place.1) else { continue };
            let Some(start) = partition.start.clone() else { continue };
            match &begun {
                Ok(()) => {
                    let consumer = self.intake.consumer();
                    debug!(consumer, place = partition.place(), start = start.offset, "reading begins");
                    warn_if_not_followed(partition, &start);
                    partition.phase = Phase::Flowing;
                    partition.delayed_by = None;
                    partition.flowing_since = Some(Instant::now());
                    partition.stream.start(start);
                    self.survey_soon();
                }
                Err(e) => {
                    // The log may look different when it is tried again.
                    partition.start = None;
                    self.try_again(&place, Some(in_words(e)));
                }
            }
        }
    }

    /// `/healthz` tells the reason, if it is worth telling, and the log once for all of them.
    fn try_again(&mut self, place: &Place, reason: Option<String>) {
        let Some(partition) = self.partitions.get_mut(&place.0, place.1) else { return };
        let Phase::Waiting { failures } = partition.phase else { return };
        let failures = failures.saturating_add(1);
        debug!(
            consumer = self.intake.consumer(),
            place = partition.place(),
            reason,
            failures,
            "cannot begin yet"
        );
        partition.phase = Phase::Waiting { failures };
        partition.delayed_by = reason;
        self.agenda.begin_later(place.clone(), backoff::PARTITION.delay(failures));
    }
}

fn in_words(reason: &KafkaError) -> String {
    match reason.rdkafka_error_code() {
        Some(RDKafkaErrorCode::LeaderNotAvailable) => "no broker leads it".to_owned(),
        Some(RDKafkaErrorCode::OperationTimedOut) => "the broker that leads it does not answer".to_owned(),
        _ => reason.to_string(),
    }
}

/// Puts together what is known about one partition.
fn known(partition: &Partition, seen: Seen) -> KafkaResult<Known> {
    let not_asked = KafkaError::OffsetFetch(RDKafkaErrorCode::NoOffset);
    Ok(Known {
        stored: partition.stream.acquired().unwrap_or_default(),
        committed: seen.committed.map(|commit| commit.offset),
        log: seen.log,
        low: seen.low.ok_or(not_asked)?,
        high: seen.high,
    })
}

/// Whoever sets the group's offset expects something to happen.
fn warn_if_not_followed(partition: &Partition, start: &Start) {
    let Some(committed) = start.not_followed else { return };
    let key = partition.stream.key();
    let accept_loss = if committed > start.offset { " --accept-loss" } else { "" };
    warn!(
        consumer = %key.consumer,
        place = partition.place(),
        committed,
        start = start.offset,
        "the offset {committed} that is committed for the group is not followed: the database says what was applied, and \
         reading begins at {}. To begin there all the same: `oncebox position move --consumer {} --topic {} --partition {} \
         --to {committed}{accept_loss}`",
        start.offset, key.consumer, key.topic, key.partition
    );
}

/// The partition stays ours, so that no other process of the group runs into the same problem.
pub(super) fn stop(consumer: &str, partition: &mut Partition, reason: &StartError) {
    let reason = reason.explain(partition.stream.key());
    let reason =
        format!("consumer {consumer}, topic {}, partition {}: {reason}", partition.topic, partition.number);
    error!(consumer, place = partition.place(), reason, "the partition cannot be read");
    partition.stream.stop(reason);
    partition.phase = Phase::Stopped;
    partition.stopped_at = Some(Instant::now());
}
