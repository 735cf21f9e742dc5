//! Where reading a partition begins.

use std::fmt;

use super::log::{LogId, LogMark};
use super::stream::Acquired;
use crate::inbox::StartPolicy;
use crate::store::PositionKey;

/// What is known about a partition before the first message is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// What the database knows.
    pub stored: Acquired,
    /// The offset committed at the broker: a hint that an operator can move.
    pub committed: Option<i64>,
    /// The log that is there now, if the broker tells.
    pub log: Option<LogId>,
    /// The oldest offset that the broker still has.
    pub low: i64,
    /// One past the newest offset.
    pub high: i64,
}

/// Where reading begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The first offset that is applied.
    pub offset: i64,
    /// The first offset that the source reads. What it reads below `offset` was applied; it only shows that the log is
    /// still the same.
    pub read_from: i64,
    /// The log.
    pub log: Option<LogId>,
    /// The record that must stand there still.
    pub mark: Option<LogMark>,
    /// A committed offset that is not followed: it lies ahead of the position, or below where an operator moved it.
    pub not_followed: Option<i64>,
    /// Reading begins below the position because somebody else than this consumer has set the committed offset. To be said by a
    /// source that can tell; what it reads again is counted as rewound.
    pub set_back: bool,
}

impl Start {
    /// At this offset, with nothing known about the log.
    #[must_use]
    pub fn at(offset: i64) -> Self {
        Self { offset, read_from: offset, log: None, mark: None, not_followed: None, set_back: false }
    }
}

/// Why a partition cannot go on. It stands still until an operator decides; nothing is skipped silently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Messages were removed before they were applied.
    #[error(
        "messages {next}..{low} were removed from the topic before they were applied (retention or deleted records)"
    )]
    Gap {
        /// The next offset that should have been applied.
        next: i64,
        /// The oldest one left.
        low: i64,
    },
    /// The topic is shorter than what was already applied.
    #[error(
        "the topic ends at {high} but everything up to {next} was already applied: it was truncated or created anew"
    )]
    Truncated {
        /// The next offset that should come.
        next: i64,
        /// Where the topic ends.
        high: i64,
    },
    /// It is another log under the same name.
    #[error(
        "the position {next} belongs to another log: that was {was}, now it is {is} (cluster/topic id). The topic was \
         created anew, or this is another cluster"
    )]
    OtherLog {
        /// The next offset that should come.
        next: i64,
        /// The log that the position belongs to.
        was: LogId,
        /// The log that is there now.
        is: LogId,
    },
    /// Other messages stand where messages were applied.
    #[error(
        "the log was written anew: another message stands at {offset} than the one that was applied from there, so messages \
         below the position {next} may never have been applied"
    )]
    Rewritten {
        /// Where.
        offset: i64,
        /// The next offset that should come.
        next: i64,
    },
    /// The broker has lost messages which it had handed out.
    #[error(
        "the broker has lost messages at the end of the log that were read already, and others may have taken their place \
         below the position {next}"
    )]
    LostEnd {
        /// The next offset that should come.
        next: i64,
    },
    /// The database knows nothing, the group does.
    #[error(
        "the database knows no position here, but the group has committed offset {committed}. Either this is a consumer that \
         moves to oncebox, or the database has lost what it knew"
    )]
    GroupOnly {
        /// What the group has committed.
        committed: i64,
    },
    /// `start = "fail"` and nothing is known.
    #[error("no position and no committed offset is known and start = \"fail\"")]
    Unknown,
}

impl StartError {
    /// The error with its ways out, as commands for this position.
    #[must_use]
    pub fn explain(&self, key: &PositionKey) -> String {
        let to = |to: &dyn fmt::Display| {
            format!(
                "`oncebox position move --consumer {} --topic {} --partition {} --to {to}`",
                key.consumer, key.topic, key.partition
            )
        };
        let advice = match self {
            Self::Gap { low, .. } => format!("To accept the loss: {} with --accept-loss", to(low)),
            Self::Truncated { .. }
            | Self::OtherLog { .. }
            | Self::Rewritten { .. }
            | Self::LostEnd { .. } => format!(
                "To apply the log that is there now from its beginning (receipts skip what was applied): {}; to go on behind \
                 its end: {} with --accept-loss",
                to(&"earliest"),
                to(&"latest")
            ),
            Self::GroupOnly { .. } => format!(
                "To go on where the group left off, set start = \"group\"; to apply the topic from its beginning: {}",
                to(&"earliest")
            ),
            Self::Unknown => {
                format!("Decide with {}, or set start to \"earliest\" or \"latest\"", to(&"earliest"))
            }
        };
        format!("{self}. {advice}")
    }
}

/// Where to begin: at the lower of position and committed offset; receipts absorb the overlap.
///
/// The position is the truth about what was applied. A committed offset is followed back, never forward, and only as far
/// as an operator's own move allows; below the oldest message it is no gap when the position says that what is missing
/// was applied.
pub fn start_at(known: Known, policy: StartPolicy) -> Result<Start, StartError> {
    let Known { stored, committed, log, low, high } = known;
    let within = |next: i64| match next {
        _ if next < low => Err(StartError::Gap { next, low }),
        _ if next > high => Err(StartError::Truncated { next, high }),
        _ => Ok(next),
    };
    let Some(next) = stored.next_offset else {
        let offset = match (policy, committed) {
            (StartPolicy::Group, Some(committed)) => within(committed)?,
            (_, Some(committed)) => return Err(StartError::GroupOnly { committed }),
            (StartPolicy::Earliest | StartPolicy::Group, None) => low,
            (StartPolicy::Latest, None) => high,
            (StartPolicy::Fail, None) => return Err(StartError::Unknown),
        };
        return Ok(Start { log, ..Start::at(offset) });
    };
    if let (Some(was), Some(is)) = (&stored.log, &log)
        && was.contradicts(is)
    {
        return Err(StartError::OtherLog { next, was: was.clone(), is: is.clone() });
    }
    // What is known stays known, although a broker may not tell every time.
    let log = match (log, &stored.log) {
        (Some(is), Some(was)) => Some(is.completed_by(was)),
        (is, was) => is.or_else(|| was.clone()),
    };
    within(next)?;
    let floor = stored.floor.unwrap_or(i64::MIN).min(next);
    let offset = committed.map_or(next, |committed| committed.clamp(low, next)).max(floor);
    let mark = stored.mark.filter(|mark| mark.offset >= low && mark.offset < next);
    Ok(Start {
        offset,
        read_from: mark.map_or(offset, |mark| mark.offset.min(offset)),
        log,
        mark,
        not_followed: committed.filter(|committed| *committed > next || *committed < floor),
        set_back: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(position: Option<i64>, committed: Option<i64>) -> Known {
        let stored = Acquired { next_offset: position, ..Acquired::default() };
        Known { stored, committed, log: None, low: 10, high: 100 }
    }

    fn offset(known: Known, policy: StartPolicy) -> Result<i64, StartError> {
        start_at(known, policy).map(|start| start.offset)
    }

    #[test]
    fn begins_at_the_lower_of_the_two() {
        let start = |p, c| offset(known(p, c), StartPolicy::Fail);
        assert_eq!(start(Some(50), Some(50)), Ok(50));
        assert_eq!(start(Some(50), Some(20)), Ok(20), "an operator rewound the group");
        assert_eq!(start(Some(50), Some(70)), Ok(50), "the database was restored to an older state");
        assert_eq!(start(Some(50), None), Ok(50), "the group's offsets expired");
        assert_eq!(start(Some(50), Some(5)), Ok(10), "rewound past the oldest message, which was applied");
        assert_eq!(start(Some(100), Some(100)), Ok(100), "caught up");
    }

    #[test]
    fn a_group_without_a_position_is_a_question() {
        for policy in [StartPolicy::Earliest, StartPolicy::Latest, StartPolicy::Fail] {
            let start = offset(known(None, Some(30)), policy);
            assert_eq!(start, Err(StartError::GroupOnly { committed: 30 }), "{policy:?}");
        }
        assert_eq!(offset(known(None, Some(30)), StartPolicy::Group), Ok(30));
        assert_eq!(offset(known(None, None), StartPolicy::Group), Ok(10));
        let gap = offset(known(None, Some(5)), StartPolicy::Group);
        assert_eq!(gap, Err(StartError::Gap { next: 5, low: 10 }));
        let beyond = offset(known(None, Some(200)), StartPolicy::Group);
        assert_eq!(beyond, Err(StartError::Truncated { next: 200, high: 100 }));
    }

    #[test]
    fn what_is_not_followed_is_reported() {
        let start = |k| start_at(k, StartPolicy::Fail).map(|start| (start.offset, start.not_followed));
        assert_eq!(start(known(Some(50), Some(70))), Ok((50, Some(70))), "ahead of the position");
        assert_eq!(start(known(Some(50), Some(20))), Ok((20, None)));
        let mut moved = known(Some(50), Some(20));
        moved.stored.floor = Some(40);
        assert_eq!(start(moved), Ok((40, Some(20))), "below where an operator moved it");
    }

    #[test]
    fn a_gap_stops() {
        let start = |p, c| offset(known(p, c), StartPolicy::Earliest);
        assert_eq!(start(Some(5), Some(50)), Err(StartError::Gap { next: 5, low: 10 }));
        assert_eq!(start(Some(101), None), Err(StartError::Truncated { next: 101, high: 100 }));
    }

    #[test]
    fn another_log_stops_whatever_its_length() {
        let mut known = known(Some(50), Some(50));
        known.stored.log = Some(LogId::new("c/one"));
        let start = start_at(known.clone(), StartPolicy::Fail);
        assert!(start.is_ok_and(|s| s.offset == 50 && s.log == known.stored.log), "the broker does not tell");
        known.log = Some(LogId::new("c/one"));
        assert_eq!(offset(known.clone(), StartPolicy::Fail), Ok(50));
        known.log = Some(LogId::new("c/two"));
        assert!(matches!(offset(known, StartPolicy::Fail), Err(StartError::OtherLog { next: 50, .. })));
    }

    #[test]
    fn the_last_settled_record_is_read_again() {
        let mut known = known(Some(50), Some(50));
        known.stored.mark = Some(LogMark { offset: 47, digest: 1 });
        let start = start_at(known.clone(), StartPolicy::Fail);
        assert!(start.is_ok_and(|s| s.read_from == 47 && s.offset == 50 && s.mark.is_some()));
        known.committed = Some(20);
        assert!(
            start_at(known.clone(), StartPolicy::Fail).is_ok_and(|s| s.read_from == 20 && s.offset == 20)
        );
        known.low = 48;
        let start = start_at(known, StartPolicy::Fail);
        assert!(start.is_ok_and(|s| s.read_from == 48 && s.mark.is_none()), "it is gone");
    }

    #[test]
    fn the_policy_decides_when_nothing_is_known() {
        assert_eq!(offset(known(None, None), StartPolicy::Earliest), Ok(10));
        assert_eq!(offset(known(None, None), StartPolicy::Latest), Ok(100));
        assert_eq!(offset(known(None, None), StartPolicy::Fail), Err(StartError::Unknown));
    }
}
