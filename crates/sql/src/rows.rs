//! How many rows a statement has to touch.

use std::fmt;
use std::ops::{RangeFrom, RangeInclusive, RangeToInclusive};
use std::str::FromStr;

/// The rows a statement has to touch; another number rejects the message. Both ends are included.
///
/// ```
/// use oncebox_sql::RowRule;
///
/// let some: RowRule = "1..".parse()?;
/// assert!(some.allows(7) && !some.allows(0));
/// let few: RowRule = "1..3".parse()?;
/// assert!(few.allows(3) && !few.allows(4));
/// # Ok::<(), oncebox_sql::RowRuleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRule {
    min: u64,
    max: Option<u64>,
}

/// Why a text is not a rule about rows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowRuleError {
    /// Neither a number nor a range.
    #[error("`{0}` is neither a number nor a range of numbers")]
    Syntax(String),
    /// A range that no number is in.
    #[error("no number of rows is in the range {min}..{max}")]
    NoneAllowed {
        /// The lower end.
        min: u64,
        /// The upper end.
        max: u64,
    },
}

impl RowRule {
    /// Exactly that many.
    #[must_use]
    pub const fn exactly(rows: u64) -> Self {
        Self { min: rows, max: Some(rows) }
    }

    /// The fewest rows allowed.
    #[must_use]
    pub const fn min(&self) -> u64 {
        self.min
    }

    /// The most rows allowed, `None` when there is no bound.
    #[must_use]
    pub const fn max(&self) -> Option<u64> {
        self.max
    }

    /// Whether a statement may touch that many.
    #[must_use]
    pub fn allows(&self, rows: u64) -> bool {
        rows >= self.min && self.max.is_none_or(|max| rows <= max)
    }
}

impl From<u64> for RowRule {
    fn from(rows: u64) -> Self {
        Self::exactly(rows)
    }
}

impl From<RangeFrom<u64>> for RowRule {
    fn from(rows: RangeFrom<u64>) -> Self {
        Self { min: rows.start, max: None }
    }
}

impl From<RangeInclusive<u64>> for RowRule {
    fn from(rows: RangeInclusive<u64>) -> Self {
        Self { min: *rows.start(), max: Some(*rows.end()) }
    }
}

impl From<RangeToInclusive<u64>> for RowRule {
    fn from(rows: RangeToInclusive<u64>) -> Self {
        Self { min: 0, max: Some(rows.end) }
    }
}

impl FromStr for RowRule {
    type Err = RowRuleError;

    fn from_str(text: &str) -> Result<Self, RowRuleError> {
        let syntax = || RowRuleError::Syntax(text.to_owned());
        let number = |part: &str| {
            let part = part.trim();
            let digits = part.bytes().all(|b| b.is_ascii_digit());
            if digits { part.parse::<u64>().map_err(|_| syntax()) } else { Err(syntax()) }
        };
        let Some((min, max)) = text.split_once("..") else {
            return number(text).map(Self::exactly);
        };
        let (min, max) = (min.trim(), max.trim());
        if min.is_empty() && max.is_empty() {
            return Err(syntax());
        }
        let min = if min.is_empty() { 0 } else { number(min)? };
        let max = if max.is_empty() { None } else { Some(number(max)?) };
        match max {
            Some(max) if max < min => Err(RowRuleError::NoneAllowed { min, max }),
            _ => Ok(Self { min, max }),
        }
    }
}

impl fmt::Display for RowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (min, Some(max)) if min == max => write!(f, "{min}"),
            (0, Some(max)) => write!(f, "..{max}"),
            (min, Some(max)) => write!(f, "{min}..{max}"),
            (min, None) => write!(f, "{min}.."),
        }
    }
}
