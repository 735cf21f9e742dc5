//! How an error of the database reads: whole, and without the values that it quotes.
//!
//! Which texts quote values is told by SQLite's result code, never by the text.

use std::error::Error;

use oncebox_core::error::Wording;
use oncebox_core::store::{ErrorClass, StoreError};
use sqlx::error::DatabaseError;
use sqlx::sqlite::SqliteError;

use crate::classify::code;

/// A constraint that a trigger has raised, in its own words.
const CONSTRAINT_TRIGGER: i32 = 1811;

/// An error of the store, with both of its texts.
pub(crate) fn said(class: ErrorClass, doing: impl Into<String>, error: sqlx::Error) -> StoreError {
    let plain = of_driver(&error, class).plain;
    StoreError::new(class, doing, error).worded(plain)
}

/// See [`oncebox_core::store::Store::wording`].
pub(crate) fn wording(error: &(dyn Error + 'static), class: ErrorClass) -> Option<Wording> {
    if let Some(driver) = error.downcast_ref::<sqlx::Error>() {
        return Some(of_driver(driver, class));
    }
    // What is left of sqlx's error when a wrapper such as `anyhow` or `io::Error` hides the error itself.
    if let Some(database) = error.downcast_ref::<SqliteError>() {
        return Some(of_database(database, class));
    }
    error.downcast_ref::<Box<dyn DatabaseError>>().map(|error| of_database(error.as_ref(), class))
}

fn of_driver(error: &sqlx::Error, class: ErrorClass) -> Wording {
    if let Some(database) = error.as_database_error() {
        return of_database(database, class);
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

fn of_database(error: &dyn DatabaseError, class: ErrorClass) -> Wording {
    let number = code(error).unwrap_or_default();
    let text = fixed_text(number, class).unwrap_or(error.message());
    Wording {
        whole: format!("(code: {number}) {}", error.message()),
        plain: format!("(code: {number}) {text}"),
    }
}

/// What stands for a message that may quote values; `None` if it names only what is in the database.
fn fixed_text(code: i32, class: ErrorClass) -> Option<&'static str> {
    match (code & 0xff, class) {
        _ if code == CONSTRAINT_TRIGGER => Some("raised by a trigger of the database"),
        // Busy, a file, a table that is not there.
        (_, ErrorClass::Away | ErrorClass::Transient | ErrorClass::Environment) => None,
        // Too large, a constraint (with its columns or its name), a type that does not fit, a parameter.
        (18 | 19 | 20 | 25, _) => None,
        // A function refuses a value: it has the code of all that has no better one.
        _ => Some("the statement failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_with_names_alone_are_shown() {
        assert!(fixed_text(1, ErrorClass::Failed).is_some(), "malformed JSON, and what it is");
        assert!(fixed_text(1811, ErrorClass::Failed).is_some(), "RAISE(ABORT, …)");
        assert_eq!(fixed_text(1, ErrorClass::Environment), None, "no such table");
        assert_eq!(fixed_text(2067, ErrorClass::Failed), None, "UNIQUE constraint failed: orders.id");
        assert_eq!(fixed_text(5, ErrorClass::Transient), None, "database is locked");
    }
}
