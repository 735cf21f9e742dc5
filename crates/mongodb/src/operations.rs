//! Handlers from the configuration: operations with values of the messages filled in.
//!
//! ```no_run
//! use oncebox_core::inbox::Inbox;
//! use oncebox_mongodb::MongoStore;
//! use oncebox_mongodb::operations::{Operations, OperationsHandler, PayloadKind};
//!
//! # async fn demo(store: MongoStore) -> oncebox_core::error::Result {
//! let operations = Operations::each(
//!     [
//!         r#"{"update": "stock", "filter": {"_id": ":payload.sku"}, "with": {"$inc": {"taken": ":payload.qty"}}, "rows": 1}"#,
//!         r#"{"insert": "ledger", "document": {"_id": ":id", "sku": ":payload.sku", "qty": ":payload.qty"}}"#,
//!     ],
//!     PayloadKind::Json,
//! )?;
//! let handler = OperationsHandler::prepare(&store, operations).await?;
//! let worker = Inbox::new("stock", store)?.apply(handler);
//! # drop(worker);
//! # Ok(())
//! # }
//! ```

mod collections;
mod commands;
mod compile;
mod emission;
mod error;
mod failure;
mod json;
mod operation;
mod place;
mod probe;
mod problem;
mod run;
mod template;
#[cfg(test)]
mod tests;
mod typed;
mod values;

use std::fmt;

use mongodb::bson::Bson;
use oncebox_core::inbox::{Apply, Failure};
use oncebox_core::message::Message;

use crate::store::MongoStore;
use crate::tx::MongoTx;
use collections::Collections;
use compile::Compiler;
pub use error::{BadOperation, OperationsError};
pub use oncebox_sql::PayloadKind;
use operation::Operation;
pub use operation::Standing;
use place::Scope;
pub use problem::Problem;
use values::Wanted;

/// What is wrong with an operation, given as the text of a JSON object. Asks nobody, so that a configuration can be checked
/// without a database.
#[must_use]
pub fn check_operation(text: &str, standing: Standing) -> Vec<Problem> {
    Operation::read(text, standing).err().unwrap_or_default()
}

/// What is wrong with the query of a sweep: `{"aggregate": COLLECTION, "pipeline": [STAGES]}`.
#[must_use]
pub fn check_sweep(text: &str) -> Vec<Problem> {
    let mut compiler = Compiler::new(Scope::Nothing);
    match json::read(text) {
        Ok(Bson::Document(query)) => compiler.at("pipeline", |compiler| match query.get("pipeline") {
            Some(Bson::Array(stages)) => {
                compiler.pipeline(stages);
            }
            _ => compiler.report("this is not a pipeline", "write [ { \"$match\" = { … } } ]"),
        }),
        Ok(_) => compiler.report("this is not a query", "write `aggregate` and `pipeline`"),
        Err(why) => compiler.report(why, "write `aggregate` and `pipeline`"),
    }
    compiler.problems
}

/// The operations of a handler, read but not yet seen by a database.
#[derive(Debug, Clone, PartialEq)]
pub struct Operations {
    list: Vec<Operation>,
    standing: Standing,
}

impl Operations {
    /// Operations that run for every message, in order, each the text of a JSON object.
    ///
    /// # Errors
    /// Every operation that is wrong, with its number and the reason.
    pub fn each(
        list: impl IntoIterator<Item = impl AsRef<str>>,
        payload: PayloadKind,
    ) -> Result<Self, OperationsError> {
        Self::read(list, Standing::Each(payload))
    }

    /// Operations that run for every document that a pipeline makes of the messages, each the text of a JSON object.
    ///
    /// # Errors
    /// Every operation that is wrong, with its number and the reason.
    pub fn batch(
        list: impl IntoIterator<Item = impl AsRef<str>>,
        payload: PayloadKind,
    ) -> Result<Self, OperationsError> {
        Self::read(list, Standing::Batch(payload))
    }

    fn read(
        list: impl IntoIterator<Item = impl AsRef<str>>,
        standing: Standing,
    ) -> Result<Self, OperationsError> {
        let (mut read, mut bad) = (Vec::new(), Vec::new());
        for (text, number) in list.into_iter().zip(1..) {
            match Operation::read(text.as_ref(), standing) {
                Ok(operation) => read.push(operation),
                Err(problems) => {
                    bad.extend(problems.iter().map(|p| BadOperation { number, reason: p.to_string() }));
                }
            }
        }
        match (read.is_empty(), bad.is_empty()) {
            (_, false) => Err(OperationsError::Operations(bad)),
            (true, true) => Err(OperationsError::Empty),
            (false, true) => Ok(Self { list: read, standing }),
        }
    }
}

/// A handler of operations. The writes of a whole batch are grouped into as few commands as their order allows: it matters
/// only within one collection.
///
/// A message is rejected, without another attempt, if an operation matches another number of documents than its `rows`
/// allow, or if something of it is not what it should be: a payload that is not JSON, a text that should be a date.
pub struct OperationsHandler {
    store: MongoStore,
    operations: Vec<Operation>,
    standing: Standing,
    wanted: Wanted,
    collections: Collections,
}

impl fmt::Debug for OperationsHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.operations.iter().map(Operation::name).collect();
        f.debug_struct("OperationsHandler").field("operations", &names).finish_non_exhaustive()
    }
}

impl OperationsHandler {
    /// Checks all operations against the database: collections must be there, and the server must know the expressions.
    ///
    /// # Errors
    /// [`OperationsError::Operations`] lists every operation that is refused. If all of them are refused for what the database
    /// lacks (a collection, a right), it is the source of an [`OperationsError::Store`] of the class
    /// [`ErrorClass::Environment`](oncebox_core::store::ErrorClass::Environment): it may be mended, and is worth another try.
    pub async fn prepare(store: &MongoStore, operations: Operations) -> Result<Self, OperationsError> {
        let Operations { list, standing } = operations;
        let collections = probe::probe(store, &list).await?;
        let (Standing::Each(payload) | Standing::Batch(payload)) = standing;
        let wanted = Wanted::of(&list, payload);
        Ok(Self { store: store.clone(), operations: list, standing, wanted, collections })
    }
}

impl Apply<MongoStore> for OperationsHandler {
    async fn apply(&self, tx: &mut MongoTx, fresh: &[Message]) -> Result<(), Failure> {
        if fresh.is_empty() {
            return Ok(());
        }
        // A failure of the messages passes through as a value, so that only silence becomes an error of the store.
        let run = async { Ok(run::run(self, tx, fresh).await) };
        self.store.patiently("running operations", run).await.map_err(Failure::of_batch)?
    }
}
