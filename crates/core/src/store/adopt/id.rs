//! How a message id is written into a column that was not made for it.

use uuid::Uuid;

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

    /// Whether several spellings of an id are one message for the column.
    #[must_use]
    pub fn is_uuid(self) -> bool {
        matches!(self, Self::Uuid | Self::UuidHex | Self::UuidBytes)
    }
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
