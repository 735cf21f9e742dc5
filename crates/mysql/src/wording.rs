//! How an error of the database reads: whole, and without the values that it quotes.
//!
//! Which texts quote values is told by the server's number, never by the text, which may be in any language.

use std::error::Error;

use oncebox_core::error::Wording;
use oncebox_core::store::{ErrorClass, StoreError};
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

use crate::classify::class_of_number;

/// The SQLSTATE of a `SIGNAL`, whatever number it was given.
const SIGNAL: &str = "45000";

/// An error of the store, with both of its texts.
pub(crate) fn said(class: ErrorClass, doing: impl Into<String>, error: sqlx::Error) -> StoreError {
    let plain = of_driver(&error).plain;
    StoreError::new(class, doing, error).worded(plain)
}

/// See [`oncebox_core::store::Store::wording`].
pub(crate) fn wording(error: &(dyn Error + 'static)) -> Option<Wording> {
    if let Some(driver) = error.downcast_ref::<sqlx::Error>() {
        return Some(of_driver(driver));
    }
    // anyhow and friends hide the outer error's type but show its cause.
    if let Some(database) = error.downcast_ref::<MySqlDatabaseError>() {
        return Some(of_server(database));
    }
    error.downcast_ref::<Box<dyn DatabaseError>>().and_then(|error| error.try_downcast_ref()).map(of_server)
}

/// What the server says, or the driver.
pub(crate) fn of_driver(error: &sqlx::Error) -> Wording {
    if let Some(server) = error.as_database_error().and_then(|error| error.try_downcast_ref()) {
        return of_server(server);
    }
    let whole = error.to_string();
    let plain = match error {
        sqlx::Error::ColumnDecode { index, .. } => format!("column {index} could not be decoded"),
        sqlx::Error::Encode(_) => "a value could not be encoded".to_owned(),
        sqlx::Error::Decode(_) => "a value could not be decoded".to_owned(),
        _ => whole.clone(),
    };
    Wording { whole, plain }
}

fn of_server(error: &MySqlDatabaseError) -> Wording {
    let number = error.number();
    let text = fixed_text(number, error.code() == Some(SIGNAL)).unwrap_or(error.message());
    Wording { whole: format!("{} ({number})", error.message()), plain: format!("{text} ({number})") }
}

/// What stands for a message of the server that may quote values; `None` if it names only what is in the database.
fn fixed_text(number: u16, signalled: bool) -> Option<&'static str> {
    match number {
        1644 => Some("raised by a procedure or a trigger of the database"),
        _ if signalled => Some("raised by a procedure or a trigger of the database"),
        1062 | 1169 | 1586 => Some("a row with this key is there already"),
        // A value that does not fit, a date that is none, JSON that is none, a number out of range in an expression.
        1292 | 1366 | 1367 | 1411 | 1525 | 1690 | 3140 | 3141 | 3156 | 3903 | 4037..=4042 => {
            Some("a value does not fit")
        }
        // Texts that messages carry are parsed too, as a search query or a path.
        1064 | 1149 | 1191 | 3143 | 3144 => Some("a text could not be parsed"),
        // MariaDB's number for an account that is locked.
        4151 => None,
        // NOT NULL, too long, out of range for a column, foreign keys, CHECK, division by zero, a statement that took too long:
        // these name columns and constraints.
        1048 | 1264 | 1265 | 1365 | 1406 | 1451 | 1452 | 1969 | 3024 | 3819 | 4025 => None,
        _ if class_of_number(number) == ErrorClass::Failed => Some("the database refused it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_with_names_alone_are_shown() {
        for quoted in [1062, 1292, 1366, 1411, 1644, 1064, 3141, 4038, 1690, 1105] {
            assert!(fixed_text(quoted, false).is_some(), "{quoted}");
        }
        for named in [1048, 1406, 1452, 3819, 4025, 1146, 1054, 1142, 3118, 4151, 1205, 1213, 1040] {
            assert_eq!(fixed_text(named, false), None, "{named}");
        }
        assert!(fixed_text(1146, true).is_some(), "a SIGNAL may have any number");
    }
}
