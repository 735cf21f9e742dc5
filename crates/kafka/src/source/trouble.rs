//! Troubles that last: each begins once and ends once, in the log and in `/healthz`.

use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode;
use tracing::{debug, info, warn};

/// One kind of trouble, while it lasts.
#[derive(Debug)]
pub(super) struct Trouble {
    with: &'static str,
    text: Option<String>,
    since: Instant,
}

impl Trouble {
    pub(super) fn with(with: &'static str) -> Self {
        Self { with, text: None, since: Instant::now() }
    }

    /// What it is, if there is any.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// It is so now. The log hears of the beginning and of the end.
    pub(super) fn now_is(&mut self, consumer: &str, text: Option<String>) {
        match (&self.text, &text) {
            (None, Some(problem)) => {
                self.since = Instant::now();
                warn!(consumer, problem, "trouble with {}; trying again", self.with);
            }
            (Some(problem), None) => {
                let seconds = self.since.elapsed().as_secs();
                info!(consumer, problem, seconds, "no more trouble with {}", self.with);
            }
            (Some(before), Some(now)) if before != now => {
                debug!(consumer, problem = now, "still trouble with {}", self.with);
            }
            _ => {}
        }
        self.text = text;
    }
}

/// Something that must not hold for long: between two states it may for a moment.
#[derive(Debug, Default)]
pub(super) struct Lasting {
    since: Option<Instant>,
    /// How often in a row it was seen.
    seen: u32,
}

impl Lasting {
    /// It holds now, or does not.
    pub(super) fn note(&mut self, holds: bool) {
        self.since = if holds { self.since.or_else(|| Some(Instant::now())) } else { None };
        self.seen = if holds { self.seen.saturating_add(1) } else { 0 };
    }

    /// It was seen more than once.
    pub(super) fn is_more_than_a_moment(&self) -> bool {
        self.seen > 1
    }

    /// For how long it has held.
    pub(super) fn lasts(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// What to do about an error with which a broker refuses a member of a group; `None` for other errors.
pub(super) fn group_refused(code: RDKafkaErrorCode) -> Option<&'static str> {
    use RDKafkaErrorCode::{
        GroupAuthorizationFailed, GroupMaxSizeReached, InconsistentGroupProtocol, InvalidGroupId,
        InvalidSessionTimeout,
    };
    match code {
        InconsistentGroupProtocol => Some(
            "Another member uses no assignment strategy of ours: end it, or set `partition.assignment.strategy` to one \
             that all members have, or use another group",
        ),
        InvalidSessionTimeout => Some(
            "Set `session.timeout.ms` within the brokers' `group.min.session.timeout.ms` and `group.max.session.timeout.ms`",
        ),
        GroupAuthorizationFailed => Some("Grant Read on the group to this user"),
        InvalidGroupId => Some("Use another name for the group"),
        GroupMaxSizeReached => {
            Some("The group is full: raise the brokers' `group.max.size`, or end a member")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_stays_until_it_is_over() {
        let mut trouble = Trouble::with("the group");
        assert_eq!(trouble.text(), None);
        trouble.now_is("c", Some("refused".to_owned()));
        trouble.now_is("c", Some("refused again".to_owned()));
        assert_eq!(trouble.text(), Some("refused again"));
        trouble.now_is("c", None);
        assert_eq!(trouble.text(), None);
    }

    #[test]
    fn once_is_a_moment() {
        let mut lasting = Lasting::default();
        lasting.note(true);
        assert!(!lasting.is_more_than_a_moment());
        lasting.note(false);
        lasting.note(true);
        assert!(!lasting.is_more_than_a_moment(), "not in a row");
        lasting.note(true);
        assert!(lasting.is_more_than_a_moment());
        lasting.note(false);
        assert_eq!(lasting.lasts(), Duration::ZERO);
    }
}
