//! Where reading a partition begins.

use crate::policy::StartPolicy;

/// What is known about a partition before the first message is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The position in the database: the next offset to apply.
    pub position: Option<i64>,
    /// The offset committed at the broker: a hint that an operator can move.
    pub committed: Option<i64>,
    /// The oldest offset that the broker still has.
    pub low: i64,
    /// One past the newest offset.
    pub high: i64,
}

/// Why a partition cannot begin. It stands still until an operator decides; nothing is skipped silently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Messages were removed before they were applied.
    #[error(
        "messages {next}..{low} were removed from the topic before they were applied (retention or deleted records). \
         To accept the loss set next_offset to {low} in oncebox_position for this consumer, topic and partition"
    )]
    Gap {
        /// The next offset that should have been applied.
        next: i64,
        /// The oldest one left.
        low: i64,
    },
    /// The topic is shorter than what was already applied.
    #[error(
        "the topic ends at {high} but everything up to {next} was already applied: the topic was truncated or created \
         anew. If it is a new topic, delete this consumer's row for the topic and partition from oncebox_position"
    )]
    Truncated {
        /// The next offset that should come.
        next: i64,
        /// Where the topic ends.
        high: i64,
    },
    /// `start = "fail"` and nothing is known.
    #[error(
        "no position and no committed offset is known and start = \"fail\": commit an offset for the group, or set start \
         to \"earliest\" or \"latest\""
    )]
    Unknown,
}

/// The offset to begin at: the lower of position and committed offset; receipts absorb the overlap.
///
/// A committed offset below the oldest message is no gap when the position says that what is missing was applied.
pub fn start_at(known: Known, policy: StartPolicy) -> Result<i64, StartError> {
    let Known { position, committed, low, high } = known;
    // The position is the truth about what was applied; the committed offset only where there is none.
    let Some(next) = position.or(committed) else {
        return match policy {
            StartPolicy::Earliest => Ok(low),
            StartPolicy::Latest => Ok(high),
            StartPolicy::Fail => Err(StartError::Unknown),
        };
    };
    if next < low {
        return Err(StartError::Gap { next, low });
    }
    if next > high {
        return Err(StartError::Truncated { next, high });
    }
    Ok(committed.map_or(next, |c| c.clamp(low, next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(position: Option<i64>, committed: Option<i64>) -> Known {
        Known { position, committed, low: 10, high: 100 }
    }

    #[test]
    fn begins_at_the_lower_of_the_two() {
        let start = |p, c| start_at(known(p, c), StartPolicy::Fail);
        assert_eq!(start(Some(50), Some(50)), Ok(50));
        assert_eq!(start(Some(50), Some(20)), Ok(20), "an operator rewound the group");
        assert_eq!(start(Some(50), Some(70)), Ok(50), "the database was restored to an older state");
        assert_eq!(start(Some(50), None), Ok(50), "the group's offsets expired");
        assert_eq!(start(None, Some(30)), Ok(30), "a group that moves to oncebox");
        assert_eq!(start(Some(50), Some(5)), Ok(10), "rewound past the oldest message, which was applied");
        assert_eq!(start(Some(100), Some(100)), Ok(100), "caught up");
    }

    #[test]
    fn a_gap_stops() {
        let start = |p, c| start_at(known(p, c), StartPolicy::Earliest);
        assert_eq!(start(Some(5), Some(50)), Err(StartError::Gap { next: 5, low: 10 }));
        assert_eq!(start(None, Some(5)), Err(StartError::Gap { next: 5, low: 10 }));
        assert_eq!(start(Some(101), None), Err(StartError::Truncated { next: 101, high: 100 }));
        assert_eq!(start(None, Some(200)), Err(StartError::Truncated { next: 200, high: 100 }));
    }

    #[test]
    fn the_policy_decides_when_nothing_is_known() {
        assert_eq!(start_at(known(None, None), StartPolicy::Earliest), Ok(10));
        assert_eq!(start_at(known(None, None), StartPolicy::Latest), Ok(100));
        assert_eq!(start_at(known(None, None), StartPolicy::Fail), Err(StartError::Unknown));
    }
}
