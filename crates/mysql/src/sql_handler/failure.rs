//! What a failed run means for the messages, and how it reads in a dead letter.
//!
//! While statements run, variables of the session say where they are: they outlive the error, and no handler of conditions has to
//! be declared for it.

use oncebox_core::error::{WithValues, Wording, reject};
use oncebox_core::inbox::Failure;
use oncebox_sql::{RowRule, Step};
use sqlx::{MySqlConnection, Row};

use super::events::forget_cause;
use crate::wording::of_driver;

/// What there is to say about each statement.
#[derive(Debug)]
pub(super) struct Sources(Vec<(String, Option<RowRule>)>);

impl Sources {
    pub(super) fn new(steps: &[Step]) -> Self {
        Self(steps.iter().map(|step| (step.sql.source().to_owned(), step.rows)).collect())
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(source, _)| source.as_str())
    }
}

/// Says where the run is: the message, counted from 0, and the statement, counted from 1.
pub(super) fn at(message: &str, statement: usize) -> String {
    format!("SET @oncebox_message = {message}, @oncebox_statement = {statement}, @oncebox_rows = NULL")
}

/// The same within one message.
pub(super) fn at_statement(statement: usize) -> String {
    format!("SET @oncebox_statement = {statement}")
}

/// Whatever a run leaves in the session, gone.
pub(super) fn forget(events: bool) -> String {
    let nowhere = "SET @oncebox_message = NULL, @oncebox_statement = NULL, @oncebox_rows = NULL, @oncebox_messages = NULL";
    if events { format!("{nowhere}; {}", forget_cause()) } else { nowhere.to_owned() }
}

/// Where a run was when it failed.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) message: Option<usize>,
    statement: Option<usize>,
    /// How many rows were touched, if that was the failure.
    rows: Option<i64>,
}

/// Asks where the run was. Nobody knows if the connection is gone.
pub(super) async fn place(conn: &mut MySqlConnection) -> Place {
    const ASK: &str = "SELECT CAST(@oncebox_message AS SIGNED), CAST(@oncebox_statement AS SIGNED), \
         CAST(@oncebox_rows AS SIGNED); SET @oncebox_message = NULL, @oncebox_statement = NULL, @oncebox_rows = NULL, \
         @oncebox_messages = NULL, @oncebox_consumer = NULL, @oncebox_causation_id = NULL, \
         @oncebox_tenant = NULL, @oncebox_traceparent = NULL, @oncebox_correlation_id = NULL";
    let asked = sqlx::raw_sql(ASK).fetch_all(conn).await;
    let Some(row) = asked.ok().and_then(|rows| rows.into_iter().next()) else { return Place::default() };
    let number = |column: usize| row.try_get::<Option<i64>, _>(column).ok().flatten();
    let count = |column: usize| number(column).and_then(|number| usize::try_from(number).ok());
    Place { message: count(0), statement: count(1), rows: number(2) }
}

/// The failure of a run over `messages` messages.
pub(super) fn failure(sources: &Sources, messages: usize, place: &Place, error: sqlx::Error) -> Failure {
    let only = (messages == 1).then_some(0);
    let at = place.message.filter(|at| *at < messages).or(only);
    let statement = place.statement.and_then(|number| Some((number, sources.0.get(number.checked_sub(1)?)?)));
    let Some((number, (source, rule))) = statement else {
        return Failure { at: only, error: error.into() };
    };
    if let (Some(rows), Some(rule)) = (place.rows, rule) {
        let error = reject(format!("statement {number} touched {rows} rows, expected {rule}: {source}"));
        return Failure { at, error };
    }
    let with_statement = |text| format!("statement {number}: {text}: {source}");
    let Wording { whole, plain } = of_driver(&error);
    let wording = Wording { whole: with_statement(whole), plain: with_statement(plain) };
    Failure { at, error: WithValues::new(wording, error).into() }
}
