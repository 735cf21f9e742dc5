//! How a message id is written into a column that was not made for it.

use std::fmt;
use std::str::FromStr;

use uuid::{Uuid, Variant};

/// What the column of the message id holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// The id as text.
    Text {
        /// The most characters that the column takes.
        max_chars: Option<u32>,
        /// Whether blanks at the end are not kept (`CHAR(n)`).
        padded: bool,
    },
    /// A UUID: a type of its own, or its text with hyphens in lower case.
    Uuid,
    /// A UUID as 32 hex digits in lower case: what Django writes into `char(32)`.
    UuidHex,
    /// The sixteen bytes of a UUID.
    UuidBytes,
    /// The bytes of the id in UTF-8.
    Bytes {
        /// The most bytes that the column takes.
        max_bytes: Option<u32>,
    },
}

/// How ids are written, where the type of their column leaves it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdFormat {
    /// As they are.
    Text,
    /// UUIDs, with hyphens in lower case where the column is one of text.
    Uuid,
    /// UUIDs as 32 hex digits in lower case.
    Hex,
    /// UUIDs as 16 bytes.
    UuidBytes,
}

impl IdFormat {
    const NAMES: [(&'static str, Self); 4] =
        [("text", Self::Text), ("uuid", Self::Uuid), ("hex", Self::Hex), ("uuid-bytes", Self::UuidBytes)];

    /// This format in a column of that type.
    pub(super) fn within(self, by_type: IdKind) -> Result<IdKind, String> {
        let takes = |most: Option<u32>, needed: u32| most.is_none_or(|most| most >= needed);
        match (self, by_type) {
            (Self::Text, IdKind::UuidHex) => Ok(IdKind::Text { max_chars: Some(32), padded: true }),
            (Self::Text, IdKind::Text { .. } | IdKind::Bytes { .. }) => Ok(by_type),
            (Self::Uuid, IdKind::Uuid) => Ok(by_type),
            (Self::Uuid, IdKind::Text { max_chars, .. }) if takes(max_chars, 36) => Ok(IdKind::Uuid),
            (Self::Hex, IdKind::UuidHex) => Ok(by_type),
            (Self::Hex, IdKind::Text { max_chars, .. }) if takes(max_chars, 32) => Ok(IdKind::UuidHex),
            (Self::UuidBytes, IdKind::UuidBytes) => Ok(by_type),
            (Self::UuidBytes, IdKind::Bytes { max_bytes }) if takes(max_bytes, 16) => Ok(IdKind::UuidBytes),
            _ => Err(format!("one that cannot hold ids of the format {self}")),
        }
    }
}

impl fmt::Display for IdFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for IdFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, format)| *format);
        known.ok_or_else(|| {
            format!("{name:?} is no format of ids: write \"text\", \"uuid\", \"hex\" or \"uuid-bytes\"")
        })
    }
}

/// An id as its column holds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoredId {
    /// Text.
    Text(String),
    /// A UUID.
    Uuid(Uuid),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl fmt::Display for StoredId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Uuid(id) => id.fmt(f),
            Self::Bytes(bytes) => bytes.iter().take(32).try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl IdKind {
    /// What is written for this id.
    ///
    /// # Errors
    /// Why the column cannot hold it as it is. It is never cut, padded or replaced.
    pub fn stored(self, id: &str) -> Result<StoredId, String> {
        match self {
            Self::Text { max_chars, padded } => {
                let length = id.chars().count();
                if let Some(most) = max_chars.filter(|most| length > *most as usize) {
                    return Err(format!("the id has {length} characters, and the column holds {most}"));
                }
                if padded && id.ends_with(' ') {
                    return Err("the id ends in a blank, which the column does not keep".to_owned());
                }
                Ok(StoredId::Text(id.to_owned()))
            }
            Self::Uuid => uuid(id).map(StoredId::Uuid),
            Self::UuidHex => uuid(id).map(|id| StoredId::Text(id.simple().to_string())),
            Self::UuidBytes => uuid(id).map(|id| StoredId::Bytes(id.into_bytes().into())),
            Self::Bytes { max_bytes } => {
                if let Some(most) = max_bytes.filter(|most| id.len() > *most as usize) {
                    return Err(format!("the id has {} bytes, and the column holds {most}", id.len()));
                }
                Ok(StoredId::Bytes(id.as_bytes().into()))
            }
        }
    }

    /// The id that a stored value stands for; a UUID in lower case with hyphens. `None` if no id is written so.
    #[must_use]
    pub fn id_of(self, stored: &StoredId) -> Option<String> {
        match (self, stored) {
            (Self::Uuid, StoredId::Uuid(id)) => Some(id.to_string()),
            (Self::UuidHex | Self::Uuid, StoredId::Text(text)) => uuid(text).ok().map(|id| id.to_string()),
            (Self::UuidBytes, StoredId::Bytes(bytes)) => {
                Uuid::from_slice(bytes).ok().map(|id| id.to_string())
            }
            (Self::Text { .. }, StoredId::Text(text)) => Some(text.clone()),
            (Self::Bytes { .. }, StoredId::Bytes(bytes)) => String::from_utf8(bytes.clone()).ok(),
            _ => None,
        }
    }

    /// Whether this is how an id of this kind is written. Sixteen bytes must have the marks of a UUID in their places: other
    /// orders of the same bytes are in use.
    #[must_use]
    pub fn writes(self, stored: &StoredId) -> bool {
        let Some(own) = self.id_of(stored).and_then(|id| self.stored(&id).ok()) else { return false };
        match (&own, stored) {
            (StoredId::Uuid(own), StoredId::Text(text)) => own.to_string() == *text,
            (StoredId::Bytes(bytes), _) if self == Self::UuidBytes => {
                own == *stored && Uuid::from_slice(bytes).is_ok_and(|id| has_marks(&id))
            }
            _ => own == *stored,
        }
    }

    /// Whether several spellings of an id are one message for the column.
    #[must_use]
    pub fn is_uuid(self) -> bool {
        matches!(self, Self::Uuid | Self::UuidHex | Self::UuidBytes)
    }
}

fn has_marks(id: &Uuid) -> bool {
    id.is_nil() || (matches!(id.get_version_num(), 1..=8) && id.get_variant() == Variant::RFC4122)
}

/// With hyphens or without, in any case. Not in braces and not as a URN: purge compares spellings in SQL.
fn uuid(id: &str) -> Result<Uuid, String> {
    let plain = matches!(id.len(), 32 | 36);
    Uuid::try_parse(id)
        .ok()
        .filter(|_| plain)
        .ok_or_else(|| "the id is not a UUID, and the column holds nothing else".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn spellings_of_a_uuid_are_one() {
        for kind in [IdKind::Uuid, IdKind::UuidHex, IdKind::UuidBytes] {
            let stored = kind.stored(ID).unwrap();
            assert_eq!(kind.stored(&ID.to_uppercase()), Ok(stored.clone()));
            assert_eq!(kind.stored(&ID.replace('-', "")), Ok(stored.clone()));
            assert_eq!(kind.id_of(&stored).as_deref(), Some(ID));
            for bad in ["order-1", "", &format!("{{{ID}}}"), &format!("urn:uuid:{ID}")] {
                assert!(kind.stored(bad).is_err(), "{bad}");
            }
        }
        assert_eq!(
            IdKind::UuidHex.stored(ID),
            Ok(StoredId::Text("01890a5dac96774bbcceb302099a8057".to_owned()))
        );
    }

    #[test]
    fn what_others_wrote_is_told_from_what_we_would() {
        let text = |text: &str| StoredId::Text(text.to_owned());
        let simple = ID.replace('-', "");
        assert!(IdKind::UuidHex.writes(&text(&simple)));
        assert!(!IdKind::UuidHex.writes(&text(&simple.to_uppercase())));
        assert!(!IdKind::UuidHex.writes(&text("01ARZ3NDEKTSV4RRFFQ69G5FAV")));
        assert!(IdKind::Uuid.writes(&text(ID)) && !IdKind::Uuid.writes(&text(&ID.to_uppercase())));
        let bytes = Uuid::try_parse(ID).unwrap().into_bytes();
        assert!(IdKind::UuidBytes.writes(&StoredId::Bytes(bytes.to_vec())));
        assert!(!IdKind::Uuid.writes(&StoredId::Bytes(bytes.to_vec())));
        assert!(!IdKind::Bytes { max_bytes: None }.writes(&StoredId::Bytes(bytes.to_vec())));
        // As .NET orders them.
        let swapped = uuid::uuid!("01890a5d-ac96-7f0b-bcce-b302099a8057").to_bytes_le();
        assert!(!IdKind::UuidBytes.writes(&StoredId::Bytes(swapped.to_vec())));
    }

    #[test]
    fn a_format_needs_a_column_that_can_hold_it() {
        let text = |max_chars| IdKind::Text { max_chars, padded: false };
        assert_eq!(
            IdFormat::Text.within(IdKind::UuidHex),
            Ok(IdKind::Text { max_chars: Some(32), padded: true })
        );
        assert_eq!(IdFormat::Hex.within(text(None)), Ok(IdKind::UuidHex));
        assert_eq!(IdFormat::Uuid.within(text(Some(36))), Ok(IdKind::Uuid));
        assert!(IdFormat::Uuid.within(text(Some(32))).is_err());
        assert_eq!(IdFormat::UuidBytes.within(IdKind::Bytes { max_bytes: None }), Ok(IdKind::UuidBytes));
        assert!(
            IdFormat::UuidBytes.within(IdKind::Uuid).is_err() && IdFormat::Text.within(IdKind::Uuid).is_err()
        );
        assert_eq!("uuid-bytes".parse(), Ok(IdFormat::UuidBytes));
        assert!("guid".parse::<IdFormat>().is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused_and_never_cut() {
        let text = IdKind::Text { max_chars: Some(3), padded: true };
        assert_eq!(text.stored("äöü"), Ok(StoredId::Text("äöü".to_owned())));
        assert!(text.stored("abcd").is_err());
        assert!(text.stored("ab ").is_err());
        let bytes = IdKind::Bytes { max_bytes: Some(3) };
        assert!(bytes.stored("äö").is_err());
        assert_eq!(bytes.stored("abc"), Ok(StoredId::Bytes(b"abc".to_vec())));
    }
}
