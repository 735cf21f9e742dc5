//! Ids that are made of several values: which, and how they become one text.

use std::fmt::{self, Write as _};

use super::Read;
use super::selector::{SelectError, Selector, read_leaves, text_at};
use crate::message::Record;

/// Two to eight selectors that make an id together.
///
/// The values are joined by `|`. Within a value, `~` is written `~0` and `|` is written `~1` (as JSON pointers write `~` and
/// `/`). So two different lists of values never give the same id, and an id without these two characters reads as it is.
///
/// ```
/// use oncebox::Selector;
/// use oncebox::message::Record;
///
/// let mut record = Record::at("payments", 0, 7);
/// record.payload = Some(br#"{"eventCode": "REFUND", "pspReference": "85|A"}"#.as_slice().into());
///
/// let id = Selector::all(["json:/eventCode".parse()?, "json:/pspReference".parse()?])?;
/// assert_eq!(id.select(&record)?, "REFUND|85~1A");
/// # Ok::<(), oncebox::BoxError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts(Vec<Selector>);

/// Why selectors do not make an id together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// Fewer than two.
    #[error("an id of several parts has at least two; one selector stands alone, without a list")]
    TooFew,
    /// More than [`Parts::MOST`].
    #[error("an id has at most {} parts", Parts::MOST)]
    TooMany,
    /// A part that makes no difference.
    #[error("the part {0} is there twice")]
    Twice(Selector),
    /// A list within the list.
    #[error("a part of an id has no parts itself")]
    Nested,
}

impl Parts {
    /// The most selectors.
    pub const MOST: usize = 8;

    /// Checks the selectors.
    ///
    /// # Errors
    /// Says what is wrong with the list.
    pub fn new(selectors: impl IntoIterator<Item = Selector>) -> Result<Self, PartsError> {
        let mut parts: Vec<Selector> = Vec::new();
        for selector in selectors {
            if matches!(selector, Selector::All(_)) {
                return Err(PartsError::Nested);
            }
            if parts.contains(&selector) {
                return Err(PartsError::Twice(selector));
            }
            if parts.len() == Self::MOST {
                return Err(PartsError::TooMany);
            }
            parts.push(selector);
        }
        if parts.len() < 2 { Err(PartsError::TooFew) } else { Ok(Self(parts)) }
    }

    /// In the order in which their values are joined.
    pub fn iter(&self) -> impl Iterator<Item = &Selector> {
        self.0.iter()
    }

    /// Reads all parts, and the pointer `further` on the way: the payload is read once.
    pub(super) fn select_with(&self, record: &Record, further: Option<&str>) -> (Read, Option<Read>) {
        let pointers = self.0.iter().filter_map(|part| match part {
            Selector::Json(pointer) => Some(pointer.as_str()),
            _ => None,
        });
        let pointers: Vec<&str> = pointers.chain(further).collect();
        let mut found = match read_all(record, &pointers) {
            Ok(found) => found,
            Err(e) => return (Err(e.clone()), further.map(|_| Err(e))),
        };
        let further = further.and_then(|_| found.pop());
        (self.join(record, found), further)
    }

    fn join(&self, record: &Record, from_json: Vec<Read>) -> Read {
        let mut from_json = from_json.into_iter();
        let mut id = String::new();
        for (nth, part) in self.0.iter().enumerate() {
            let value = match part {
                Selector::Json(pointer) => {
                    from_json.next().unwrap_or_else(|| Err(SelectError::NothingAt(pointer.clone())))
                }
                other => other.select(record),
            }?;
            if value.is_empty() {
                return Err(SelectError::EmptyPart(part.to_string()));
            }
            if nth > 0 {
                id.push('|');
            }
            push_escaped(&mut id, &value);
        }
        Ok(id)
    }
}

/// What is at each of the pointers. The walk has room for a number of them that is known beforehand.
fn read_all(record: &Record, pointers: &[&str]) -> Result<Vec<Read>, SelectError> {
    const ALL: usize = Parts::MOST + 1;
    match pointers.len() {
        0 => Ok(Vec::new()),
        1 | 2 => read_up_to::<2>(record, pointers),
        3 | 4 => read_up_to::<4>(record, pointers),
        _ => read_up_to::<ALL>(record, pointers),
    }
}

fn read_up_to<const N: usize>(record: &Record, pointers: &[&str]) -> Result<Vec<Read>, SelectError> {
    let leaves = read_leaves::<N>(record, std::array::from_fn(|nth| pointers.get(nth).copied()))?;
    Ok(pointers.iter().zip(leaves).map(|(pointer, leaf)| text_at(pointer, leaf)).collect())
}

fn push_escaped(id: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '~' => id.push_str("~0"),
            '|' => id.push_str("~1"),
            c => id.push(c),
        }
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, part) in self.0.iter().enumerate() {
            f.write_str(if nth == 0 { "[" } else { ", " })?;
            write!(f, "{part}")?;
        }
        f.write_char(']')
    }
}
