//! What a failed call means for the messages, and how it reads in a dead letter.

use std::error::Error;
use std::fmt;

use oncebox_core::error::{BoxError, reject};
use oncebox_core::inbox::Failure;
use sqlx::postgres::PgDatabaseError;

use super::function::Function;
use crate::classify::ROW_RULE;

/// A statement of a handler that the database refused.
#[derive(Debug)]
pub(super) struct StatementFailed {
    text: String,
    source: sqlx::Error,
}

impl fmt::Display for StatementFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for StatementFailed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// The function is not there: a new connection that could not define it, or a pooler that nobody mentioned.
pub(super) fn is_missing_function(error: &sqlx::Error) -> bool {
    // Inside of the function the error would have a context.
    of_server(error)
        .is_some_and(|error| matches!(error.code(), "42883" | "3F000") && error.r#where().is_none())
}

/// The failure of a call over `messages` messages.
pub(super) fn failure(
    function: &Function,
    sources: &[String],
    messages: usize,
    error: sqlx::Error,
) -> Failure {
    let only = (messages == 1).then_some(0);
    let Some(server) = of_server(&error) else { return Failure { at: only, error: error.into() } };
    let number = statement_number(function, server);
    let source = number.and_then(|number| sources.get(number - 1)).map_or("", String::as_str);
    if server.code() == ROW_RULE {
        let place =
            server.detail().and_then(|place| place.parse::<usize>().ok()).and_then(|n| n.checked_sub(1));
        let error = reject(format!("{}: {source}", server.message()));
        return Failure { at: place.filter(|at| *at < messages).or(only), error };
    }
    let text = match number {
        Some(number) => format!("statement {number}: {}: {source}", readable(server)),
        None => readable(server),
    };
    let error: BoxError = Box::new(StatementFailed { text, source: error });
    Failure { at: only, error }
}

fn readable(error: &PgDatabaseError) -> String {
    let more = [error.detail().unwrap_or_default(), error.hint().unwrap_or_default()];
    with_details(error.message(), more, error.code())
}

/// The server's message, detail and hint, and its code.
pub(super) fn with_details(message: &str, more: [&str; 2], state: &str) -> String {
    let mut text = message.to_owned();
    for more in more.into_iter().filter(|more| !more.is_empty()) {
        text.push_str("; ");
        text.push_str(more);
    }
    text.push_str(&format!(" ({state})"));
    text
}

fn of_server(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// PostgreSQL names the line of the function in its context, whose innermost call stands first.
fn statement_number(function: &Function, error: &PgDatabaseError) -> Option<usize> {
    let ours = error.r#where()?.lines().find(|line| line.contains(&function.name))?;
    let line: usize = ours.split(") line ").nth(1)?.split(' ').next()?.parse().ok()?;
    function.statement_at(line)
}
