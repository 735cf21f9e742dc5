//! `each`: statements that run for every message.

use std::sync::Arc;

use oncebox_core::error::BoxError;
use oncebox_core::inbox::Failure;
use oncebox_core::message::Message;
use oncebox_sql::Param;
use oncebox_sql::SqlHandlerError;
use oncebox_sql::{PayloadKind, Step};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, SqliteConnection};

use super::statements::{Statements, together};
use super::values::{Value, Values, Wanted};

/// How many messages travel together.
const TOGETHER: usize = 16;

/// A handler that runs for every message.
#[derive(Debug)]
pub(super) struct Each {
    wanted: Wanted,
    statements: Statements,
    /// The statements for [`TOGETHER`] messages, and for one.
    many: Arc<str>,
    one: Arc<str>,
}

impl Each {
    pub(super) async fn prepare(
        conn: &mut SqliteConnection,
        steps: &[Step],
        payload: PayloadKind,
    ) -> Result<Self, SqlHandlerError> {
        let statements = Statements::prepare(conn, steps, |step| render(step, 0)).await?;
        let used = steps.iter().flat_map(|step| step.sql.params()).collect();
        let text = |messages: usize| {
            together((0..messages).flat_map(|message| steps.iter().map(move |step| render(step, message))))
        };
        Ok(Self { wanted: Wanted { used, payload }, statements, many: text(TOGETHER), one: text(1) })
    }

    pub(super) async fn apply(&self, conn: &mut SqliteConnection, fresh: &[Message]) -> Result<(), Failure> {
        let values = self.wanted.values(fresh)?;
        let (many, rest) = values.as_chunks::<TOGETHER>();
        let many = many.iter().map(|messages| (&self.many, messages.as_slice()));
        let rest = rest.iter().map(|message| (&self.one, std::slice::from_ref(message)));
        let mut first = 0;
        for (text, messages) in many.chain(rest) {
            let arguments = arguments(messages).map_err(Failure::of_batch)?;
            let run = self.statements.run(conn, text, arguments).await;
            run.map_err(|stopped| Failure { at: Some(first + stopped.rounds), error: stopped.error })?;
            first += messages.len();
        }
        Ok(())
    }
}

/// `$n` rather than `?n`: SQLite numbers `?n` with gaps, which the driver would fill with other parameters.
fn render(step: &Step, message: usize) -> String {
    step.sql.render(|param| format!("${}", message * Param::ALL.len() + param.index()))
}

fn arguments(messages: &[Values<'_>]) -> Result<SqliteArguments, BoxError> {
    let mut arguments = SqliteArguments::default();
    for value in messages.iter().flatten() {
        match value {
            Value::Null => arguments.add(None::<i64>),
            Value::Integer(integer) => arguments.add(*integer),
            Value::Text(text) => arguments.add(text.as_ref()),
            Value::Blob(bytes) => arguments.add(*bytes),
        }?;
    }
    Ok(arguments)
}
