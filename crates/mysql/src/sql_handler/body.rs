//! The body of a routine that runs the statements of `each` for all messages of a batch, on the server.
//!
//! It expects three inputs: `oncebox_p_json`, `oncebox_p_count` and `oncebox_p_consumer`. A local name wins over a column, so
//! local names are ones that no statement may use. The loop goes by count: a handler for NOT FOUND would also see that of a
//! statement.

use oncebox_sql::{RowRule, Step};

use super::names::variable;
use super::render::render;
use super::table::{in_order, type_of};
use super::values::Wanted;
use super::{events, failure};
use crate::classify::ROW_RULE;

/// What a routine is made of.
pub(super) struct Parts<'h> {
    pub(super) steps: &'h [Step],
    pub(super) wanted: &'h Wanted,
    /// For each step, whether it answers with rows.
    pub(super) returns_rows: &'h [bool],
    pub(super) events: bool,
}

/// The types of the inputs, by name.
pub(super) const INPUTS: [(&str, &str); 3] = [
    ("oncebox_p_json", "LONGTEXT CHARACTER SET utf8mb4"),
    ("oncebox_p_count", "INT"),
    ("oncebox_p_consumer", "VARCHAR(256) CHARACTER SET utf8mb4"),
];

/// Declarations and loop; what stands around them is for the caller.
///
/// Invariant of the loop: `oncebox_p_at` messages are done, and the cursor stands before the next one.
pub(super) fn body(parts: &Parts<'_>) -> String {
    let Parts { steps, wanted, returns_rows, events } = *parts;
    let mut body = String::from("DECLARE oncebox_p_at INT DEFAULT 0;\nDECLARE oncebox_p_rows BIGINT;\n");
    for param in &wanted.used {
        body.push_str(&format!("DECLARE {} {};\n", variable(*param), type_of(*param, wanted.payload)));
    }
    let variables: Vec<_> = wanted.used.iter().map(|param| variable(*param)).collect();
    body.push_str(&format!(
        "DECLARE oncebox_p_cursor CURSOR FOR {};\nOPEN oncebox_p_cursor;\n\
         WHILE oncebox_p_at < oncebox_p_count DO\n{};\nFETCH oncebox_p_cursor INTO {};\n",
        in_order("oncebox_p_json", wanted),
        failure::at("oncebox_p_at", 1),
        variables.join(", "),
    ));
    if events {
        let [id, headers, tenant] = events::CAUSE.map(variable);
        body.push_str(&format!("{};\n", events::tell_cause("oncebox_p_consumer", &id, &tenant, &headers)));
    }
    for (at, step) in steps.iter().enumerate() {
        if at > 0 {
            body.push_str(&format!("{};\n", failure::at_statement(at + 1)));
        }
        // The statement may end in a comment, so what follows stands on a line of its own.
        body.push_str(&format!("{}\n;\n", render(&step.sql, variable)));
        if let Some(rule) = step.rows {
            body.push_str(&row_rule(rule, returns_rows.get(at) == Some(&true)));
        }
    }
    body.push_str(&format!(
        "SET oncebox_p_at = oncebox_p_at + 1;\nEND WHILE;\nCLOSE oncebox_p_cursor;\n{};\n",
        failure::forget(events)
    ));
    body
}

/// What tells how many rows the last statement touched: those it matched, whether they changed or not, or those it answered with.
pub(super) fn touched(returns_rows: bool) -> &'static str {
    if returns_rows { "FOUND_ROWS()" } else { "ROW_COUNT()" }
}

fn row_rule(rule: RowRule, returns_rows: bool) -> String {
    let upper = rule.max().map_or(String::new(), |max| format!(" OR oncebox_p_rows > {max}"));
    format!(
        "SET oncebox_p_rows = {};\nIF oncebox_p_rows < {}{upper} THEN\nSET @oncebox_rows = oncebox_p_rows;\n\
         SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {ROW_RULE}, MESSAGE_TEXT = 'another number of rows than the rule allows';\n\
         END IF;\n",
        touched(returns_rows),
        rule.min(),
    )
}
