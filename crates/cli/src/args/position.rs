//! `oncebox position`.

use std::str::FromStr;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use oncebox_core::names::ConsumerName;

use super::OutputArg;

#[derive(Debug, Subcommand)]
pub(crate) enum PositionAction {
    /// Show where each consumer is.
    List {
        /// Only of this consumer.
        #[arg(long)]
        consumer: Option<String>,
        /// Only in this topic.
        #[arg(long)]
        topic: Option<String>,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Go on from another place. Back is safe: receipts skip what was applied. A running daemon goes on from there.
    Move(PositionMove),
    /// Let go of a topic that will not come back, so that it no longer holds back the retention of receipts.
    Retire {
        /// The consumer.
        #[arg(long)]
        consumer: ConsumerName,
        /// The topic.
        #[arg(long)]
        topic: String,
        #[command(flatten)]
        output: OutputArg,
    },
}

/// What is moved, and where to.
#[derive(Debug, Args)]
pub(crate) struct PositionMove {
    /// The consumer.
    #[arg(long)]
    pub(crate) consumer: ConsumerName,
    /// The topic.
    #[arg(long)]
    pub(crate) topic: String,
    /// Only this partition; without it all of the topic.
    #[arg(long)]
    pub(crate) partition: Option<i32>,
    /// An offset, `earliest`, `latest`, or a time such as 2026-11-01T00:00:00Z.
    #[arg(long, value_name = "OFFSET|earliest|latest|TIME")]
    pub(crate) to: To,
    /// Skip messages that were not applied.
    #[arg(long)]
    pub(crate) accept_loss: bool,
    /// Only show what would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: OutputArg,
}

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Offset(i64),
    Earliest,
    Latest,
    /// The first message at or after this time, in milliseconds since 1970.
    Time(i64),
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "earliest" => return Ok(Self::Earliest),
            "latest" => return Ok(Self::Latest),
            _ => {}
        }
        if let Ok(offset) = text.parse::<u64>() {
            return i64::try_from(offset).map(Self::Offset).map_err(|_| "no offset is that large".to_owned());
        }
        let time: Timestamp = text.parse().map_err(|_| {
            "neither an offset, nor `earliest` or `latest`, nor a time such as 2026-11-01T00:00:00Z"
                .to_owned()
        })?;
        Ok(Self::Time(time.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_offset_a_word_or_a_time() {
        assert_eq!("earliest".parse(), Ok(To::Earliest));
        assert_eq!("latest".parse(), Ok(To::Latest));
        assert_eq!("0".parse(), Ok(To::Offset(0)));
        assert_eq!("5010".parse(), Ok(To::Offset(5010)));
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(To::Time(1_000)));
        assert_eq!("1970-01-01T01:00:00.5+01:00".parse(), Ok(To::Time(500)));
        for wrong in
            ["", "-1", "first", "99999999999999999999", "2026-11-01", "2026-11-01T00:00:00", "LATEST"]
        {
            assert!(wrong.parse::<To>().is_err(), "{wrong}");
        }
    }
}
