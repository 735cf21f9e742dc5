//! Operations of a handler or a sweep for a store that does not speak SQL. Here they are only JSON; the store says what is
//! wrong with them.

use super::reader::{Entry, Section};
use super::store::StoreKind;
use super::surroundings::OperationUse;

/// The operations of a handler, each as the text of a JSON object with its keys in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operations {
    /// `each`: for every message, in order.
    Each(Vec<String>),
    /// `batch`: for every document that is made of the messages.
    Batch(Vec<String>),
}

impl Operations {
    /// All of them, in order.
    #[must_use]
    pub fn list(&self) -> &[String] {
        match self {
            Self::Each(list) | Self::Batch(list) => list,
        }
    }
}

const EXAMPLE: &str = "write an operation, such as { update = \"stock\", filter = { _id = \":payload.sku\" }, \
                       with = { \"$inc\" = { on_hand = -1 } } }";

/// Whether this is an operation rather than a statement with its settings.
pub(super) fn is_one(item: &Entry<'_, '_>) -> bool {
    item.has_any(&["update", "upsert", "insert", "delete", "emit"]) && !item.has_any(&["sql"])
}

pub(super) fn read(entry: Entry<'_, '_>, store: StoreKind, place: OperationUse) -> Option<Operations> {
    if entry.is_empty_array() {
        entry.report("the list is empty", EXAMPLE);
        return None;
    }
    let items = entry.into_items("an array of operations")?;
    // All of them are looked at, so that all problems show at once.
    let read: Vec<_> = items.iter().map(|item| operation(item, store, place)).collect();
    let list = read.into_iter().collect::<Option<Vec<_>>>()?;
    Some(match place {
        OperationUse::Batch(_) => Operations::Batch(list),
        OperationUse::Each(_) | OperationUse::Sweep => Operations::Each(list),
    })
}

fn operation(item: &Entry<'_, '_>, store: StoreKind, place: OperationUse) -> Option<String> {
    if !item.is_table() || item.has_any(&["sql"]) {
        item.report("this is no operation, and the store does not speak SQL", EXAMPLE);
        return None;
    }
    let json = item.json()?;
    let problems = (item.surroundings().check_operation)(store, place, &json);
    for problem in &problems {
        item.report_inside(&problem.path, problem.message.as_str(), problem.fix.as_str());
    }
    problems.is_empty().then_some(json)
}

/// `aggregate` and `pipeline` of a sweep, as one JSON object.
pub(super) fn sweep(section: &mut Section<'_, '_>, store: StoreKind) -> Option<String> {
    let aggregate = section
        .required("aggregate", "it is missing", "name the collection that the pipeline reads")
        .and_then(|entry| entry.filled_text());
    let pipeline = section.required(
        "pipeline",
        "it is missing",
        "write an array of stages; each document that comes out becomes an event",
    )?;
    let collection = serde_json::Value::String(aggregate?);
    let json = format!("{{\"aggregate\":{collection},\"pipeline\":{}}}", pipeline.json()?);
    let problems = (pipeline.surroundings().check_operation)(store, OperationUse::Sweep, &json);
    for problem in &problems {
        // The path begins with the key of the sweep.
        let inside = problem.path.get(1..).unwrap_or_default();
        pipeline.report_inside(inside, problem.message.as_str(), problem.fix.as_str());
    }
    problems.is_empty().then_some(json)
}
