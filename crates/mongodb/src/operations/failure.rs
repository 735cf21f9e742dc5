//! What a failed run means for the messages, and how it reads in a dead letter.

use mongodb::bson::{Bson, Document};
use mongodb::error::Error;
use oncebox_core::error::{BoxError, Outcome, WithValues, Wording, reject};
use oncebox_core::inbox::Failure;
use oncebox_core::store::StoreError;
use oncebox_sql::RowRule;

use super::commands::{Command, Expect, Origin};
use super::operation::Operation;
use crate::classify::{class_of_code, class_of_driver};
use crate::wording::{self, store_error};

/// Names operations and messages in failures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blame<'o> {
    pub(super) operations: &'o [Operation],
    /// How many messages the batch has.
    pub(super) messages: usize,
}

impl Blame<'_> {
    /// Whose fault it is: the message of the write, or the only one there is.
    fn message(&self, origin: Option<&Origin>) -> Option<usize> {
        let only = (self.messages == 1).then_some(0);
        origin.and_then(|origin| origin.message).or(only)
    }

    pub(super) fn operation(&self, number: usize) -> String {
        let name = self.operations.get(number).map(Operation::name).unwrap_or_default();
        format!("operation {} ({name})", number + 1)
    }

    /// A value of a message does not fit. Why may quote it.
    pub(super) fn unfit(&self, origin: Origin, why: &str) -> Failure {
        let error = unfit_value(&self.operation(origin.operation), why);
        Failure { at: self.message(Some(&origin)), error }
    }

    /// The messages together do not fit.
    pub(super) fn too_much(&self, origin: Origin, why: &str) -> Failure {
        let error = reject(format!("{}: {why}", self.operation(origin.operation)));
        Failure { at: self.message(Some(&origin)), error }
    }

    /// The server refused a command, or never answered.
    pub(super) fn refused(&self, operation: usize, origin: Option<&Origin>, error: &Error) -> Failure {
        let doing = self.operation(operation);
        let error = store_error(class_of_driver(error), doing, error.clone());
        Failure { at: self.message(origin), error: error.into() }
    }

    /// The database is not as it was: the first message of the command is as good as any other to see whether it is again.
    pub(super) fn of_database(&self, origin: Option<&Origin>, error: StoreError) -> Failure {
        Failure { at: self.message(origin), error: error.into() }
    }

    /// Looks through the answer to a command.
    pub(super) fn check(&self, command: &Command, answer: &Document) -> Result<(), Failure> {
        if let Some(error) = answer.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
            return Err(self.write_error(command, error));
        }
        let matched = number(answer.get("n"));
        let writes = command.origins.len() as u64;
        let (holds, rule) = match command.expect {
            Expect::Any => return Ok(()),
            Expect::One(rule) => (matched == writes, rule),
            Expect::Nothing(rule) => (matched == 0, rule),
            Expect::Alone(rule) => (rule.allows(matched), rule),
        };
        if holds { Ok(()) } else { Err(self.wrong_count(command, matched, rule)) }
    }

    fn write_error(&self, command: &Command, error: &Bson) -> Failure {
        let error = error.as_document();
        let text = error.and_then(|error| error.get_str("errmsg").ok()).unwrap_or("the write was refused");
        let code = number(error.and_then(|error| error.get("code")));
        let code = i32::try_from(code).unwrap_or_default();
        let index = usize::try_from(number(error.and_then(|error| error.get("index")))).unwrap_or_default();
        let origin = command.origins.get(index);
        let operation = origin.or(command.origins.first()).map_or(0, |origin| origin.operation);
        let whole = format!("{text} ({code})");
        let plain = wording::plain(&whole, code);
        let error = StoreError::new(class_of_code(code), self.operation(operation), whole).worded(plain);
        Failure { at: self.message(origin), error: error.into() }
    }

    /// The sum says that a rule was broken, and whose if there is only one write.
    fn wrong_count(&self, command: &Command, matched: u64, rule: RowRule) -> Failure {
        let [origin] = command.origins.as_slice() else {
            let number = command.origins.first().map_or(0, |origin| origin.operation);
            let (writes, name) = (command.origins.len(), self.operation(number));
            return Failure::of_batch(reject(format!(
                "{name} matched {matched} documents in {writes} writes, expected {rule} in each"
            )));
        };
        let documents = if matched == 1 { "document" } else { "documents" };
        let name = self.operation(origin.operation);
        let error = reject(format!("{name} matched {matched} {documents}, expected {rule}"));
        Failure { at: self.message(Some(origin)), error }
    }
}

/// No retry can help a value that does not fit.
pub(super) fn unfit_value(what: &str, why: &str) -> BoxError {
    let whole = format!("{what}: {why}");
    let plain = format!("{what}: a value of the message does not fit");
    let rejected = Outcome::Reject { reason: whole.clone() };
    WithValues::new(Wording { whole, plain }, rejected).into()
}

fn number(value: Option<&Bson>) -> u64 {
    match value {
        Some(Bson::Int32(number)) => u64::try_from(*number).unwrap_or_default(),
        Some(Bson::Int64(number)) => u64::try_from(*number).unwrap_or_default(),
        Some(Bson::Double(number)) if *number >= 0.0 => *number as u64,
        _ => 0,
    }
}
