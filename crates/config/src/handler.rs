//! `[inbox.handler]`: what a message does to the database, in SQL or in operations.

use oncebox_sql::{Handler, PayloadKind, RowRule, Sql, StatementError, Step};

use super::operations::{self, Operations};
use super::reader::{Entry, Section};
use super::store::StoreKind;
use super::surroundings::OperationUse;

/// `[inbox.handler]`, in the language of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerConfig {
    /// Statements.
    Sql(Handler),
    /// Operations of a store that does not speak SQL.
    Operations(Operations),
}

const BOTH_FIX: &str = "keep `each` (per message) or `batch` (set-based over `messages`)";

pub(super) fn read(
    mut section: Section<'_, '_>,
    store: Option<StoreKind>,
    payload: PayloadKind,
) -> Option<HandlerConfig> {
    let each = section.optional("each");
    let batch = section.optional("batch");
    match (&each, &batch) {
        (Some(_), Some(_)) => section.report("`each` and `batch` exclude each other", BOTH_FIX),
        (None, None) => section.report("there is neither `each` nor `batch`", BOTH_FIX),
        _ => {}
    }
    section.finish();
    // Both are read even if one is too many, so that all problems show at once.
    if let Some(store) = store.filter(|store| !store.speaks_sql()) {
        let each = each.and_then(|entry| operations::read(entry, store, OperationUse::Each(payload)));
        let batch = batch.and_then(|entry| operations::read(entry, store, OperationUse::Batch(payload)));
        return each.or(batch).map(HandlerConfig::Operations);
    }
    let each = each.and_then(|entry| steps(entry, Sql::parse, true, store)).map(Handler::Each);
    let batch = batch.and_then(|entry| steps(entry, Sql::parse_batch, false, store)).map(Handler::Batch);
    each.or(batch).map(HandlerConfig::Sql)
}

type Parse = fn(&str) -> Result<Sql, StatementError>;

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
        return sql(&item, parse, store).map(|sql| Step { sql, rows: None });
    }
    if operations::is_one(&item) {
        // Which of the two is meant, is not known without a store.
        if store.is_some() {
            item.report(
                "this is an operation of MongoDB, but the store speaks SQL",
                "write a statement, such as { sql = \"UPDATE …\", rows = 1 }",
            );
        }
        return None;
    }
    let mut section = item.into_section()?;
    let read = section
        .required("sql", "it is missing", "write { sql = \"…\", rows = 1 }")
        .and_then(|entry| sql(&entry, parse, store));
    let rows = section.or("rows", None, |entry| {
        if !rows_allowed {
            let refused = StatementError::RowsInBatch;
            entry.report(refused.message(), refused.fix());
        }
        row_rule(&entry).map(Some)
    });
    section.finish();
    read.map(|sql| Step { sql, rows })
}

fn sql(entry: &Entry<'_, '_>, parse: Parse, store: Option<StoreKind>) -> Option<Sql> {
    let text = entry.text()?;
    let refused = |error: StatementError| {
        entry.report_within(&text, error.offset(), error.message(), error.fix());
    };
    let sql = parse(&text).map_err(refused).ok()?;
    if let Some(store) = store {
        (entry.surroundings().check_dialect)(store, &sql).map_err(refused).ok()?;
    }
    Some(sql)
}

fn row_rule(entry: &Entry<'_, '_>) -> Option<RowRule> {
    let fix = "write a number, or a range such as \"1..\", \"..5\" or \"1..3\" (both ends included)";
    if entry.is_integer() {
        let rows = entry.integer(&(0..=i64::MAX))?;
        return u64::try_from(rows).ok().map(RowRule::exactly);
    }
    entry.parsed("a number or a range of numbers", fix, |text| text.parse().ok())
}
