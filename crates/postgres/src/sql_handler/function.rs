//! The temporary function that runs a handler's statements on the server.
//!
//! One call carries a whole batch, so the round trips do not grow with the messages. Parameters are positional and have no
//! names: a name would silently win over, or lose against, a column of the same name.

use std::sync::Arc;

use oncebox_sql::{Handler, PayloadKind, Step};
use sha2::{Digest, Sha256};

use super::{call, events, qualify};
use crate::classify::ROW_RULE;
use crate::quote::literal;

/// A handler as PostgreSQL runs it.
#[derive(Debug)]
pub(super) struct Function {
    /// `pg_temp.name(types)`, as `to_regprocedure` reads it.
    pub(super) signature: String,
    /// Its name without the schema.
    pub(super) name: String,
    /// Creates it.
    pub(super) definition: Arc<str>,
    /// Calls it with a batch.
    pub(super) call: Arc<str>,
    /// The line of its body at which each statement begins.
    lines: Vec<usize>,
}

/// A statement as it stands in the function.
pub(super) struct Rendered<'h> {
    pub(super) step: &'h Step,
    pub(super) sql: String,
    pub(super) runs: Runs,
}

/// How a statement runs inside of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    /// As it is.
    Plainly,
    /// In a loop, because it returns rows and plpgsql wants them fetched.
    ForRows,
    /// From its text, each time anew: nobody knows yet what it is about, because an earlier statement chooses the schema or
    /// the role.
    FromText,
}

/// The statements with placeholders, their calls of our functions in `schema`; how they run is not known yet.
pub(super) fn render<'h>(handler: &'h Handler, schema: Option<&str>) -> Vec<Rendered<'h>> {
    let render = |step| {
        let sql = rendered(handler, step);
        let sql = schema.map(|schema| qualify::in_schema(&sql, schema)).unwrap_or(sql);
        Rendered { step, sql, runs: Runs::Plainly }
    };
    handler.steps().iter().map(render).collect()
}

fn rendered(handler: &Handler, step: &Step) -> String {
    match handler {
        Handler::Each(_) => step.sql.render(|param| format!("${}", param.index())),
        Handler::Batch(_) => step.sql.with(MESSAGES),
    }
}

/// The nine columns, in the order of [`Param::ALL`]. A batch without any header sends no headers at all.
const MESSAGES: &str = "messages AS (SELECT u.id, u.key, u.payload, COALESCE(u.headers, '{}') AS headers, u.topic, \
     u.partition, u.\"offset\", timestamptz 'epoch' + u.ms * interval '1 millisecond' AS \"timestamp\", u.tenant \
     FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9) \
     AS u(id, key, payload, headers, topic, partition, \"offset\", ms, tenant))";

/// What a statement can see, in the order of [`Param::ALL`].
///
/// [`Param::ALL`]: oncebox_sql::Param::ALL
const MESSAGE: &str = "$1, $2, $3, $4, $5, $6, $7, $8, $9";

impl Function {
    pub(super) fn new(handler: &Handler, payload: PayloadKind, statements: &[Rendered<'_>]) -> Self {
        let types = call::parameter_types(handler, payload);
        let (body, lines) = body(handler, statements);
        let digest = Sha256::digest(format!("{types}\n{body}"));
        let prefix = match handler {
            Handler::Each(_) => "oncebox_each_",
            Handler::Batch(_) => "oncebox_batch_",
        };
        let name = digest.iter().take(12).fold(prefix.to_owned(), |name, byte| format!("{name}{byte:02x}"));
        let signature = format!("pg_temp.{name}({types})");
        let quoted = literal(&body);
        let definition =
            format!("CREATE OR REPLACE FUNCTION {signature} RETURNS integer LANGUAGE plpgsql AS {quoted}");
        let call = match handler {
            Handler::Each(_) => call::each(&name, handler, payload),
            Handler::Batch(_) => call::batch(&name, handler, payload),
        };
        Self { signature, name, definition: definition.into(), call: call.into(), lines }
    }

    /// Which statement (counted from 1) stands at a line of the body.
    pub(super) fn statement_at(&self, line: usize) -> Option<usize> {
        Some(self.lines.iter().rposition(|start| *start <= line)? + 1)
    }
}

/// Local names are ugly so that no column has them; if one does, the column is meant.
fn body(handler: &Handler, statements: &[Rendered<'_>]) -> (String, Vec<usize>) {
    let mut body = String::from(
        "#variable_conflict use_column\nDECLARE oncebox_rows_ bigint; oncebox_row_ record;\nBEGIN\n",
    );
    if events::are_written(handler) {
        body.push_str(events::tell_cause(handler));
    }
    let mut lines = Vec::new();
    for (at, statement) in statements.iter().enumerate() {
        lines.push(body.matches('\n').count() + 1);
        let sql = &statement.sql;
        // The statement may end in a line comment, so what follows stands on a line of its own.
        body.push_str(&match (statement.runs, statement.step.rows) {
            (Runs::ForRows, _) => format!(
                "oncebox_rows_ := 0; FOR oncebox_row_ IN {sql}\nLOOP oncebox_rows_ := oncebox_rows_ + 1; END LOOP;\n"
            ),
            (Runs::Plainly, Some(_)) => format!("{sql}\n; GET DIAGNOSTICS oncebox_rows_ = ROW_COUNT;\n"),
            (Runs::Plainly, None) => format!("{sql}\n;\n"),
            (Runs::FromText, _) => format!(
                "EXECUTE {} USING {MESSAGE}; GET DIAGNOSTICS oncebox_rows_ = ROW_COUNT;\n",
                literal(sql)
            ),
        });
        body.push_str(&row_rule(handler, statement.step, at + 1));
    }
    body.push_str("RETURN 1;\nEND");
    (body, lines)
}

/// The message of the error says what is wrong, its detail at which place of the batch.
fn row_rule(handler: &Handler, step: &Step, number: usize) -> String {
    let Some(rule) = step.rows else { return String::new() };
    let upper = rule.max().map_or(String::new(), |max| format!(" OR oncebox_rows_ > {max}"));
    let detail = match handler {
        Handler::Each(_) => ", DETAIL = $10::text",
        Handler::Batch(_) => "",
    };
    let message = literal(&format!("statement {number} touched %s rows, expected {rule}"));
    format!(
        "IF oncebox_rows_ < {min}{upper} THEN RAISE EXCEPTION USING ERRCODE = '{ROW_RULE}', \
         MESSAGE = format({message}, oncebox_rows_){detail}; END IF;\n",
        min = rule.min(),
    )
}
