//! Types that neither TOML nor JSON has, written as MongoDB's extended JSON writes them: `{ "$date" = "2026-01-31T12:00:00Z" }`.
//! What stands there may be filled in, so that a text of a message becomes a date.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, Uuid};

use super::json::{self, AsJson};

/// A type by its name in extended JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Binary,
    Date,
    Decimal,
    Double,
    Int,
    Long,
    ObjectId,
    Uuid,
}

const NAMES: [(&str, Type); 8] = [
    ("$binary", Type::Binary),
    ("$date", Type::Date),
    ("$numberDecimal", Type::Decimal),
    ("$numberDouble", Type::Double),
    ("$numberInt", Type::Int),
    ("$numberLong", Type::Long),
    ("$oid", Type::ObjectId),
    ("$uuid", Type::Uuid),
];

/// The type that a document stands for, and its value.
pub(super) fn of(document: &Document) -> Option<(Type, &Bson)> {
    let (key, value) = document.iter().next().filter(|_| document.len() == 1)?;
    NAMES.iter().find(|(name, _)| name == key).map(|(_, kind)| (*kind, value))
}

impl Type {
    /// The value in this type. What is not there stays null.
    pub(super) fn convert(self, value: &Bson) -> Result<Bson, String> {
        if *value == Bson::Null {
            return Ok(Bson::Null);
        }
        self.refuse_rounded(value)?;
        let text = json::scalar(value);
        let made = match (self, value) {
            (Self::Date, Bson::DateTime(_)) => Some(value.clone()),
            (Self::Date, Bson::Int32(ms)) => Some(Bson::DateTime(DateTime::from_millis(i64::from(*ms)))),
            (Self::Date, Bson::Int64(ms)) => Some(Bson::DateTime(DateTime::from_millis(*ms))),
            (Self::Date, Bson::String(text)) => DateTime::parse_rfc3339_str(text).ok().map(Bson::DateTime),
            (Self::Binary, Bson::String(text)) => {
                Binary::from_base64(text, BinarySubtype::Generic).ok().map(Bson::Binary)
            }
            (Self::Binary, Bson::Binary(_)) => Some(value.clone()),
            (Self::ObjectId, _) => text.and_then(|text| ObjectId::parse_str(text).ok()).map(Bson::ObjectId),
            (Self::Uuid, _) => {
                text.and_then(|text| Uuid::parse_str(text).ok()).map(|uuid| Bson::Binary(uuid.into()))
            }
            (Self::Decimal, _) => text.and_then(|text| text.parse().ok()).map(Bson::Decimal128),
            (Self::Double, _) => text.and_then(|text| text.parse().ok()).map(Bson::Double),
            (Self::Int, _) => text.and_then(|text| text.parse().ok()).map(Bson::Int32),
            (Self::Long, _) => text.and_then(|text| text.parse().ok()).map(Bson::Int64),
            _ => None,
        };
        made.ok_or_else(|| format!("{} is not {}", shown(value), self.what()))
    }

    /// A number that is not whole was read as a double. One that a double cannot tell from its neighbours is not what was sent.
    fn refuse_rounded(self, value: &Bson) -> Result<(), String> {
        let Bson::Double(number) = value else { return Ok(()) };
        let is_rounded = match self {
            Self::Decimal => significant_digits(*number) > EXACT_DIGITS,
            Self::Long => number.abs() >= EXACT_WHOLE,
            _ => false,
        };
        if is_rounded {
            let what = self.what();
            return Err(format!(
                "{} has more digits than are kept on the way to {what}; send it as a text",
                shown(value)
            ));
        }
        Ok(())
    }

    fn what(self) -> &'static str {
        match self {
            Self::Binary => "bytes in base64",
            Self::Date => "a time in RFC 3339, such as 2026-01-31T12:00:00Z, or in milliseconds since 1970",
            Self::Decimal => "a decimal number",
            Self::Double => "a number",
            Self::Int => "a whole number of 32 bits",
            Self::Long => "a whole number of 64 bits",
            Self::ObjectId => "an ObjectId of 24 hexadecimal digits",
            Self::Uuid => "a UUID",
        }
    }
}

/// So many digits every double keeps.
const EXACT_DIGITS: usize = f64::DIGITS as usize;
/// From here on not every whole number is a double.
const EXACT_WHOLE: f64 = 9_007_199_254_740_992.0;

fn significant_digits(number: f64) -> usize {
    let text = format!("{:e}", number.abs());
    text.split('e').next().unwrap_or_default().bytes().filter(u8::is_ascii_digit).count()
}

fn shown(value: &Bson) -> String {
    format!("{:.60}", AsJson(value).to_string())
}
