//! What a failed call means for the messages, and how it reads in a dead letter.

use oncebox_core::error::{WithValues, Wording, reject};
use oncebox_core::inbox::Failure;
use sqlx::postgres::PgDatabaseError;

use super::function::Function;
use crate::classify::ROW_RULE;
use crate::wording;

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
    let Wording { whole, plain } = wording::of_server(server);
    let wording = match number {
        Some(number) => {
            let with_statement = |text| format!("statement {number}: {text}: {source}");
            Wording { whole: with_statement(whole), plain: with_statement(plain) }
        }
        None => Wording { whole, plain },
    };
    Failure { at: only, error: WithValues::new(wording, error).into() }
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
