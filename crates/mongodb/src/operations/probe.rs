//! Whether the database would take the operations, as far as it can say without being changed.
//!
//! A collection that is missing would be made by the first insert, and a name that is mistyped would go unnoticed. So it has to
//! be there, and what its validator requires must stand in the document. Of an update or a delete the server explains how it would go about it; what it does not know, it refuses. A
//! pipeline over messages is run without any.

use std::collections::HashMap;

use mongodb::bson::{Bson, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{ValidationAction, ValidationLevel};
use mongodb::results::{CollectionSpecification, CollectionType};
use oncebox_core::store::{ErrorClass, StoreError};

use super::collections::{Collections, listed};
use super::error::{BadOperation, OperationsError};
use super::operation::{Action, Operation};
use crate::classify::class_of_driver;
use crate::store::MongoStore;

const DOING: &str = "checking the operations of a handler";
/// The server does not know an expression, or a stage. What is filled in has no part in it.
const UNKNOWN: [i32; 2] = [168, 40324];

/// The collections that are written, or everything that the database refuses.
pub(super) async fn probe(
    store: &MongoStore,
    operations: &[Operation],
) -> Result<Collections, OperationsError> {
    let found = listed(store, doc! {}, DOING).await?.into_iter();
    let found: HashMap<_, _> = found.map(|collection| (collection.name.clone(), collection)).collect();
    let (mut bad, mut lacking) = (Vec::new(), 0);
    for (operation, number) in operations.iter().zip(1..) {
        let collection = operation.collection().map(|name| (name, found.get(name)));
        let missing = collection.and_then(|(name, found)| {
            let lacking = || Some((lacking_fields(&operation.action, name, found?)?, false));
            unfit(name, found).or_else(lacking)
        });
        let refused = match missing {
            Some((reason, is_missing)) => Some((reason, is_missing)),
            None => refused(store, operation).await?,
        };
        if let Some((reason, is_lacking)) = refused {
            lacking += usize::from(is_lacking);
            bad.push(BadOperation { number, reason: format!("{reason}: {}", operation.name()) });
        }
    }
    if bad.is_empty() {
        return Ok(Collections::of(operations.iter().filter_map(Operation::collection), &found));
    }
    let all_lacking = lacking == bad.len();
    let wrong = OperationsError::Operations(bad);
    if all_lacking {
        return Err(StoreError::new(ErrorClass::Environment, DOING, wrong).into());
    }
    Err(wrong)
}

/// Why a collection will not do, and whether it is only missing.
fn unfit(name: &str, found: Option<&CollectionSpecification>) -> Option<(String, bool)> {
    let Some(found) = found else {
        let reason = format!(
            "there is no collection {name}; create it with db.createCollection(\"{name}\"), or correct the name"
        );
        return Some((reason, true));
    };
    let why = match found.collection_type {
        CollectionType::View => "a view, which cannot be written",
        CollectionType::Timeseries => "a time series, which takes no part in transactions",
        _ if found.options.capped == Some(true) => "capped, so its documents go without being asked",
        _ => return None,
    };
    Some((format!("{name} is {why}; name a plain collection"), false))
}

/// What a validator asks of every document, and an inserted one never has. Whether values fit only a message can tell.
fn lacking_fields(action: &Action, name: &str, found: &CollectionSpecification) -> Option<String> {
    let Action::Insert { document, .. } = action else { return None };
    let options = &found.options;
    if options.validation_level == Some(ValidationLevel::Off)
        || options.validation_action == Some(ValidationAction::Warn)
    {
        return None;
    }
    let schema = options.validator.as_ref()?.get_document("$jsonSchema").ok()?;
    let has = document.names()?;
    let required = schema.get_array("required").ok()?.iter().filter_map(Bson::as_str);
    let lacking: Vec<_> = required.filter(|field| *field != "_id" && !has.contains(field)).collect();
    let (last, others) = lacking.split_last()?;
    let fields =
        if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) };
    Some(format!(
        "the validator of {name} requires {fields}, which the document never has; add it, or correct the name"
    ))
}

/// Why the server refuses an operation, and whether that is for something it lacks.
async fn refused(
    store: &MongoStore,
    operation: &Operation,
) -> Result<Option<(String, bool)>, OperationsError> {
    if let Some(stages) = &operation.messages {
        let messages = doc! { "$documents": { "$literal": [] } };
        let pipeline = std::iter::once(messages).chain(stages.iter().cloned());
        if let Err(error) = store.inner.aside.aggregate(pipeline).await {
            return judged(error, true);
        }
    }
    let (command, is_fixed) = match &operation.action {
        Action::Insert { .. } | Action::Emit(_) => return Ok(None),
        Action::Update { collection, filter, with, many, .. } => {
            let update = doc! { "q": filter.sample(), "u": with.sample(), "multi": *many };
            (doc! { "update": collection, "updates": [update] }, filter.is_fixed() && with.is_fixed())
        }
        Action::Delete { collection, filter, many, .. } => {
            let delete = doc! { "q": filter.sample(), "limit": if *many { 0 } else { 1 } };
            (doc! { "delete": collection, "deletes": [delete] }, filter.is_fixed())
        }
    };
    let explain = doc! { "explain": command, "verbosity": "queryPlanner" };
    match store.inner.aside.run_command(explain).await {
        Ok(_) => Ok(None),
        Err(error) => judged(error, is_fixed),
    }
}

/// Whether an error of the server is about the operation. With values in place of null it may take it: `is_fixed` says that
/// there are none.
fn judged(error: Error, is_fixed: bool) -> Result<Option<(String, bool)>, OperationsError> {
    let ErrorKind::Command(command) = error.kind.as_ref() else {
        return Err(StoreError::new(class_of_driver(&error), DOING, error).into());
    };
    let reason = || format!("{} ({})", command.message, command.code);
    match class_of_driver(&error) {
        _ if UNKNOWN.contains(&command.code) => Ok(Some((reason(), false))),
        ErrorClass::Environment => Ok(Some((reason(), true))),
        ErrorClass::Failed if is_fixed => Ok(Some((reason(), false))),
        ErrorClass::Failed => Ok(None),
        class => Err(StoreError::new(class, DOING, error).into()),
    }
}
