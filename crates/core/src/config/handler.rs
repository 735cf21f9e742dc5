//! `[inbox.handler]`: what a message does to the database, in SQL.

use super::reader::{Entry, Section};
use super::store::StoreKind;
use crate::statement::{RowRule, Statement, StatementError};

/// `[inbox.handler]`: exactly one of `each` and `batch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handler {
    /// `each`: statements that run for every message, in order.
    Each(Vec<Step>),
    /// `batch`: set-based statements that run once per batch, over the relation `messages`.
    Batch(Vec<Step>),
}

impl Handler {
    /// Its statements in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        match self {
            Self::Each(steps) | Self::Batch(steps) => steps,
        }
    }
}

/// One entry of `each` or `batch`: a string, or `{ sql = "…", rows = … }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `sql`: the statement.
    pub statement: Statement,
    /// `rows`: the rows it has to touch, as `1`, `"1.."`, `"..5"` or `"1..3"`; another number rejects the message. Any
    /// number when absent. Only in `each`: in a batch nobody could tell which message to reject.
    pub rows: Option<RowRule>,
}

const BOTH_FIX: &str = "keep `each` (per message) or `batch` (set-based over `messages`)";

pub(super) fn read(mut section: Section<'_, '_>, store: Option<StoreKind>) -> Option<Handler> {
    let each = section.optional("each");
    let batch = section.optional("batch");
    match (&each, &batch) {
        (Some(_), Some(_)) => section.report("`each` and `batch` exclude each other", BOTH_FIX),
        (None, None) => section.report("there is neither `each` nor `batch`", BOTH_FIX),
        _ => {}
    }
    section.finish();
    // Both are read even if one is too many, so that all problems show at once.
    let each = each.and_then(|entry| steps(entry, Statement::parse, true, store)).map(Handler::Each);
    let batch =
        batch.and_then(|entry| steps(entry, Statement::parse_batch, false, store)).map(Handler::Batch);
    each.or(batch)
}

type Parse = fn(&str) -> Result<Statement, StatementError>;

fn steps(
    entry: Entry<'_, '_>,
    parse: Parse,
    rows_allowed: bool,
    store: Option<StoreKind>,
) -> Option<Vec<Step>> {
    let expected = "an array of SQL statements";
    if entry.is_empty_array() {
        entry.report("the list is empty", "write at least one SQL statement");
        return None;
    }
    let items = entry.into_items(expected)?;
    let steps: Vec<_> = items.into_iter().map(|item| step(item, parse, rows_allowed, store)).collect();
    steps.into_iter().collect()
}

fn step(item: Entry<'_, '_>, parse: Parse, rows_allowed: bool, store: Option<StoreKind>) -> Option<Step> {
    if !item.is_table() {
        return statement(&item, parse, store).map(|statement| Step { statement, rows: None });
    }
    let mut section = item.into_section()?;
    let sql = section
        .required("sql", "it is missing", "write { sql = \"…\", rows = 1 }")
        .and_then(|entry| statement(&entry, parse, store));
    let rows = section.or("rows", None, |entry| {
        if !rows_allowed {
            entry.report(
                "`rows` is about one message, but a batch statement runs once for many",
                "remove it, or move the statement to `each`",
            );
        }
        row_rule(&entry).map(Some)
    });
    section.finish();
    sql.map(|statement| Step { statement, rows })
}

fn statement(entry: &Entry<'_, '_>, parse: Parse, store: Option<StoreKind>) -> Option<Statement> {
    let sql = entry.text()?;
    let statement = match parse(&sql) {
        Ok(statement) => statement,
        Err(error) => {
            entry.report_within(&sql, error.offset(), error.message(), error.fix());
            return None;
        }
    };
    if let Some(offset) = statement.sqlite_placeholder().filter(|_| store == Some(StoreKind::Sqlite)) {
        entry.report_within(
            &sql,
            offset,
            "this is a placeholder of SQLite that nobody binds, so it would be NULL",
            "write a named parameter such as :id or :payload",
        );
    }
    Some(statement)
}

fn row_rule(entry: &Entry<'_, '_>) -> Option<RowRule> {
    let fix = "write a number, or a range such as \"1..\", \"..5\" or \"1..3\" (both ends included)";
    if entry.is_integer() {
        let rows = entry.integer(&(0..=i64::MAX))?;
        return u64::try_from(rows).ok().map(RowRule::exactly);
    }
    entry.parsed("a number or a range of numbers", fix, |text| text.parse().ok())
}
