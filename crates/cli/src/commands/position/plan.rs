//! What a move would do to one partition: a pure decision.

use oncebox_core::source::LogId;

use crate::args::To;

/// What is known about a partition before it is moved.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) partition: i32,
    /// The position, if there is one, with the log it belongs to.
    pub(super) next: Option<i64>,
    pub(super) log: Option<LogId>,
    /// The log that is there now.
    pub(super) log_now: Option<LogId>,
    /// The oldest offset that the broker still has.
    pub(super) low: i64,
    /// One past the newest offset.
    pub(super) high: i64,
    /// The first offset at or after the wanted time; `None` where all messages are older.
    pub(super) at_time: Option<i64>,
    /// The first offset that is not older than the receipts that were purged.
    pub(super) horizon: Option<i64>,
}

/// A move, decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) partition: i32,
    pub(crate) from: Option<i64>,
    pub(crate) to: i64,
    /// The position belongs to another log than the one that is there now.
    pub(crate) other_log: bool,
    /// Messages that are in the log, were not applied, and would be skipped.
    pub(crate) lost: i64,
    /// Messages that were removed from the log before they were applied.
    pub(crate) gone: i64,
    /// Messages whose receipts may be purged, so that they would be applied again.
    pub(crate) again: i64,
}

/// Where a partition goes, or why it cannot go there.
pub(super) fn plan(known: &Known, to: To) -> Result<Move, String> {
    let Known { partition, low, high, .. } = *known;
    let target = match to {
        To::Earliest => low,
        To::Latest => high,
        To::Time(_) => known.at_time.unwrap_or(high).clamp(low, high),
        To::Offset(offset) if offset < low => {
            return Err(format!(
                "partition {partition}: messages below {low} are gone from the log, {offset} among them; use --to earliest"
            ));
        }
        To::Offset(offset) if offset > high => {
            return Err(format!(
                "partition {partition}: the log ends at {high}, {offset} is beyond it; use --to latest"
            ));
        }
        To::Offset(offset) => offset,
    };
    // A position beyond the end is not about this log, whatever it is called.
    let other_log = known.next.is_some_and(|next| next > high)
        || matches!((&known.log, &known.log_now), (Some(was), Some(is)) if was.contradicts(is));
    let applied_below = known.next.filter(|_| !other_log);
    let (lost, gone) = match applied_below {
        Some(next) => (target - next.max(low), target.min(low) - next),
        None => (target - low, 0),
    };
    // Receipts absorb the way back, as far as they are still there.
    let again = match (applied_below, known.horizon) {
        (Some(next), Some(horizon)) => next.min(horizon) - target,
        _ => 0,
    };
    Ok(Move {
        partition,
        from: known.next,
        to: target,
        other_log,
        lost: lost.max(0),
        gone: gone.max(0),
        again: again.max(0),
    })
}

impl Move {
    /// Whether messages that were not applied would be passed.
    pub(super) fn loses(&self) -> bool {
        self.lost > 0 || self.gone > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(next: Option<i64>) -> Known {
        let log = Some(LogId::new("cluster/one"));
        Known {
            partition: 0,
            next,
            log: log.clone(),
            log_now: log,
            low: 100,
            high: 200,
            at_time: None,
            horizon: None,
        }
    }

    fn moved(known: &Known, to: To) -> Move {
        plan(known, to).expect("a place in the log")
    }

    #[test]
    fn words_and_times_are_places_in_the_log() {
        let at = |at_time, to| moved(&Known { at_time, ..known(Some(150)) }, to).to;
        assert_eq!(at(None, To::Earliest), 100);
        assert_eq!(at(None, To::Latest), 200);
        assert_eq!(at(Some(120), To::Time(0)), 120);
        assert_eq!(at(None, To::Time(0)), 200, "all messages are older");
        assert_eq!(at(None, To::Offset(100)), 100);
        assert_eq!(at(None, To::Offset(200)), 200);
        for outside in [99, 201] {
            let error = plan(&known(Some(150)), To::Offset(outside)).expect_err("outside");
            assert!(error.contains(&outside.to_string()), "{error}");
        }
    }

    #[test]
    fn back_loses_nothing_and_forward_loses_what_lies_between() {
        let from = |next, to| moved(&known(Some(next)), to);
        assert!(!from(150, To::Earliest).loses());
        assert!(!from(150, To::Offset(150)).loses());
        assert_eq!(from(150, To::Offset(160)).lost, 10);
        assert_eq!(from(150, To::Latest).lost, 50);
        assert_eq!(from(200, To::Latest).lost, 0);
    }

    #[test]
    fn what_is_gone_from_the_log_is_lost_too() {
        let over_the_gap = moved(&known(Some(70)), To::Earliest);
        assert_eq!((over_the_gap.lost, over_the_gap.gone), (0, 30));
        assert!(over_the_gap.loses());
        let further = moved(&known(Some(70)), To::Offset(110));
        assert_eq!((further.lost, further.gone), (10, 30));
    }

    #[test]
    fn in_another_log_nothing_was_applied() {
        let other = Known { log_now: Some(LogId::new("cluster/two")), ..known(Some(150)) };
        assert!(!moved(&other, To::Earliest).loses());
        assert_eq!(moved(&other, To::Offset(140)).lost, 40, "although the position was at 150");
        assert_eq!(moved(&other, To::Latest).lost, 100);
        assert!(moved(&other, To::Latest).other_log);
        let shorter = Known { log: None, log_now: None, ..known(Some(201)) };
        assert!(moved(&shorter, To::Latest).other_log);
        assert_eq!(moved(&shorter, To::Latest).lost, 100);
        let nothing_known = Known { log: None, ..known(Some(150)) };
        assert!(!moved(&nothing_known, To::Earliest).other_log, "what is not known contradicts nothing");
    }

    #[test]
    fn without_a_position_nothing_was_applied() {
        assert_eq!(moved(&known(None), To::Latest).lost, 100);
        assert!(!moved(&known(None), To::Earliest).loses());
    }

    #[test]
    fn what_is_older_than_the_receipts_may_be_applied_again() {
        let at = |horizon, to| moved(&Known { horizon, ..known(Some(150)) }, to).again;
        assert_eq!(at(None, To::Earliest), 0);
        assert_eq!(at(Some(130), To::Earliest), 30);
        assert_eq!(at(Some(130), To::Offset(130)), 0);
        assert_eq!(at(Some(190), To::Offset(140)), 10, "only what was applied");
        assert_eq!(at(Some(190), To::Offset(160)), 0);
    }
}
