//! How an error of the database reads: whole, and without the values that it quotes.
//!
//! Which texts quote values is told by SQLSTATE, never by the text, which may be in any language.

use std::error::Error;
use std::fmt;

use oncebox_core::error::Wording;
use oncebox_core::store::{ErrorClass, StoreError};
use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;

use crate::classify::class_of_state;

/// The function of the server that reports a `RAISE`.
const RAISE: &str = "exec_stmt_raise";

/// An error of the driver as a store's. The driver would add the line in the server's own source.
#[derive(Debug)]
struct Said {
    text: String,
    #[expect(dead_code, reason = "for whoever prints it with `{:?}`")]
    error: sqlx::Error,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Said {}

/// An error of the store, with both of its texts.
pub(crate) fn said(class: ErrorClass, doing: impl Into<String>, error: sqlx::Error) -> StoreError {
    let Wording { whole, plain } = of_driver(&error);
    StoreError::new(class, doing, Said { text: whole, error }).worded(plain)
}

/// See [`oncebox_core::store::Store::wording`].
pub(crate) fn wording(error: &(dyn Error + 'static)) -> Option<Wording> {
    if let Some(driver) = error.downcast_ref::<sqlx::Error>() {
        return Some(of_driver(driver));
    }
    // anyhow and friends hide the outer error's type but show its cause.
    if let Some(database) = error.downcast_ref::<PgDatabaseError>() {
        return Some(of_server(database));
    }
    error.downcast_ref::<Box<dyn DatabaseError>>().and_then(|error| error.try_downcast_ref()).map(of_server)
}

fn of_driver(error: &sqlx::Error) -> Wording {
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

/// What the server says.
pub(crate) fn of_server(error: &PgDatabaseError) -> Wording {
    let more = [error.detail().unwrap_or_default(), error.hint().unwrap_or_default()];
    Wording { whole: with_details(error.message(), more, error.code()), plain: plain(error) }
}

/// The server's message, detail and hint, and its code.
pub(crate) fn with_details(message: &str, more: [&str; 2], state: &str) -> String {
    let mut text = message.to_owned();
    for more in more.into_iter().filter(|more| !more.is_empty()) {
        text.push_str("; ");
        text.push_str(more);
    }
    text.push_str(&format!(" ({state})"));
    text
}

fn plain(error: &PgDatabaseError) -> String {
    let state = error.code();
    let raised = error.routine() == Some(RAISE) && !state.starts_with("OBX");
    let mut text = match fixed_text(state, raised) {
        Some(fixed) => fixed.to_owned(),
        None => error.message().to_owned(),
    };
    let names = [("table", error.table()), ("column", error.column()), ("constraint", error.constraint())];
    for (what, name) in names.into_iter().filter_map(|(what, name)| Some((what, name?))) {
        if !text.contains(name) {
            text.push_str(&format!(", {what} {name}"));
        }
    }
    text.push_str(&format!(" ({state})"));
    text
}

/// What stands for a message of the server that may quote values; `None` if it names only what is in the database.
fn fixed_text(state: &str, raised: bool) -> Option<&'static str> {
    if raised || state.starts_with("P0") {
        return Some("raised by a function or a trigger of the database");
    }
    match state.get(..2) {
        Some("22") if matches!(state, "22021" | "22P05") => {
            return Some("a character that the encoding of the database does not have");
        }
        // Of a value that does not fit the message quotes the value.
        Some("22") => return Some("a value does not fit"),
        // Of a constraint the message has the name, and the detail the values. The others are about the transaction, a limit,
        // something in use, a statement that was ended.
        Some("23" | "25" | "44" | "54" | "55" | "57") => return None,
        _ => {}
    }
    match class_of_state(state) {
        // Texts that messages carry are parsed too, as a search query or a path.
        ErrorClass::Failed if state == "42601" => Some("a text could not be parsed"),
        ErrorClass::Failed => Some("the database refused it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_with_names_alone_are_shown() {
        for quoted in
            ["22P02", "22P05", "22003", "22008", "42601", "P0001", "P0002", "XX000", "38001", "21000", ""]
        {
            assert!(fixed_text(quoted, false).is_some(), "{quoted}");
        }
        for named in
            ["23505", "23502", "23503", "23514", "42P01", "42501", "40P01", "57014", "53100", "OBX01"]
        {
            assert_eq!(fixed_text(named, false), None, "{named}");
        }
        assert!(fixed_text("42P01", true).is_some(), "a RAISE may have any code");
    }

    #[test]
    fn what_the_driver_says_about_a_value_is_left_out() {
        let of_value = sqlx::Error::Decode("4711 is not a date".into());
        assert_eq!(of_driver(&of_value).plain, "a value could not be decoded");
        assert!(of_driver(&of_value).whole.contains("4711"));
        let away = of_driver(&sqlx::Error::PoolTimedOut);
        assert_eq!(away.plain, away.whole);
    }
}
