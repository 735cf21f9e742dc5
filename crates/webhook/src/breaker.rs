//! When a receiver gets nothing for a while: a state machine that is told what happened and when, and does nothing by itself.
//!
//! It opens when several different events failed one after another and none was delivered, or when the receiver asks for a pause.
//! Then nothing is sent until the pause is over; one request tries whether the receiver is back, and the next pause is longer if it is
//! not. Any delivery closes it.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::backoff::Backoff;
use oncebox_core::outbox::Standing;
use tokio::time::Instant;
use uuid::Uuid;

/// So many different events failed in a row: it is not the events. One event that fails again and again says nothing about others.
const FAILED_IN_A_ROW: usize = 5;
/// So many different events were refused in a row: it is not the events either, and no more of them are given up.
const REFUSED_IN_A_ROW: usize = 10;

#[derive(Debug)]
pub(crate) struct Breaker {
    /// How long the pauses are.
    backoff: Backoff,
    /// After so long without a request nobody knows how the receiver is.
    forget_after: Duration,
    /// When the pause is over, if it is open.
    open_until: Option<Instant>,
    /// When the pause is over that the receiver wanted: no late delivery ends that one.
    asked_until: Option<Instant>,
    /// One request is under way that tries whether the receiver is back.
    probing: bool,
    row: Row,
}

/// What went wrong since the last delivery.
#[derive(Debug, Default)]
struct Row {
    /// Different events, as many as it takes to open.
    failed: Vec<Uuid>,
    refused: Vec<Uuid>,
    failures: u64,
    pauses: u32,
    first: Option<Instant>,
    last: Option<(Instant, Arc<str>)>,
}

/// Whether an event may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Send,
    /// As the one that tries whether the receiver is back.
    Probe,
    Wait,
}

/// Whose failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    Event,
    /// The event is to wait for a bit longer than the receiver: so that another one tries next.
    Receiver {
        after: Duration,
    },
}

/// The end of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recovery {
    pub(crate) after: Duration,
    pub(crate) failures: u64,
}

/// What a receiver did instead of taking an event.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) event: Uuid,
    pub(crate) probe: bool,
    pub(crate) reason: Arc<str>,
    /// The pause it wants.
    pub(crate) asked: Option<Duration>,
}

impl Breaker {
    /// `timeout` is how long one request may take.
    pub(crate) fn new(backoff: Backoff, timeout: Duration) -> Self {
        let forget_after = backoff.max * 2 + timeout + Duration::from_secs(10);
        Self {
            backoff,
            forget_after,
            open_until: None,
            asked_until: None,
            probing: false,
            row: Row::default(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open_until.is_some()
    }

    pub(crate) fn admit(&mut self, now: Instant) -> Admission {
        match self.open_until {
            None => Admission::Send,
            Some(until) if now >= until && !self.probing => {
                self.probing = true;
                Admission::Probe
            }
            Some(_) => Admission::Wait,
        }
    }

    /// The request that was to try it ended without an answer, because nobody waited for it any more.
    pub(crate) fn probe_dropped(&mut self) {
        self.probing = false;
    }

    pub(crate) fn delivered(&mut self, now: Instant, probe: bool) -> Option<Recovery> {
        self.ended(probe);
        if self.is_pausing_as_asked(now) {
            return None;
        }
        let row = std::mem::take(&mut self.row);
        self.close(now, &row)
    }

    pub(crate) fn failed(&mut self, now: Instant, failure: Failure) -> Blame {
        let Failure { event, probe, reason, asked } = failure;
        self.ended(probe);
        if self.row.failed.len() < FAILED_IN_A_ROW && !self.row.failed.contains(&event) {
            self.row.failed.push(event);
        }
        self.note(now, reason);
        if let Some(delay) = asked {
            self.asked_until = self.asked_until.max(Some(now + delay));
            return self.pause(now, delay);
        }
        match self.open_until {
            None if self.row.failed.len() < FAILED_IN_A_ROW => Blame::Event,
            Some(until) if !probe => self.receiver(until.saturating_duration_since(now)),
            _ => {
                self.row.pauses = self.row.pauses.saturating_add(1);
                self.pause(now, self.backoff.delay(self.row.pauses))
            }
        }
    }

    /// The receiver says that the event is wrong. No blame: it is believed.
    pub(crate) fn refused(&mut self, now: Instant, failure: Failure) -> (Option<Blame>, Option<Recovery>) {
        if self.row.refused.len() >= REFUSED_IN_A_ROW {
            // It opens as if they had failed.
            self.row.failed = self.row.refused[..FAILED_IN_A_ROW].to_vec();
            return (Some(self.failed(now, failure)), None);
        }
        self.ended(failure.probe);
        if !self.row.refused.contains(&failure.event) {
            self.row.refused.push(failure.event);
        }
        if self.is_pausing_as_asked(now) {
            return (None, None);
        }
        // It answers as it should.
        let refused = std::mem::take(&mut self.row.refused);
        let row = std::mem::replace(&mut self.row, Row { refused, ..Row::default() });
        (None, self.close(now, &row))
    }

    pub(crate) fn standing(&self, now: Instant) -> Standing {
        let Some((at, reason)) = &self.row.last else { return Standing::Ready };
        let reason = Arc::clone(reason);
        let known_until = if self.probing { now } else { self.open_until.max(Some(*at)).unwrap_or(now) };
        if now > known_until + self.forget_after {
            return Standing::Ready;
        }
        match self.open_until {
            None if self.row.failures < FAILED_IN_A_ROW as u64 => Standing::Ready,
            None => Standing::Failing { reason },
            Some(until) if now >= until && !self.probing => Standing::Probe { reason },
            Some(_) => Standing::Away { reason },
        }
    }

    fn ended(&mut self, probe: bool) {
        self.probing &= !probe;
    }

    fn is_pausing_as_asked(&self, now: Instant) -> bool {
        self.asked_until.is_some_and(|until| now < until)
    }

    fn close(&mut self, now: Instant, row: &Row) -> Option<Recovery> {
        self.open_until.take()?;
        let after = row.first.map(|first| now.saturating_duration_since(first)).unwrap_or_default();
        Some(Recovery { after, failures: row.failures })
    }

    fn note(&mut self, now: Instant, reason: Arc<str>) {
        self.row.failures += 1;
        self.row.first.get_or_insert(now);
        self.row.last = Some((now, reason));
    }

    fn pause(&mut self, now: Instant, delay: Duration) -> Blame {
        let until = self.open_until.map_or(now + delay, |known| known.max(now + delay));
        self.open_until = Some(until);
        self.receiver(until.saturating_duration_since(now))
    }

    fn receiver(&self, pause: Duration) -> Blame {
        Blame::Receiver { after: pause + self.backoff.min }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
