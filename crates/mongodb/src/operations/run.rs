//! Runs the operations on a batch of messages, inside of its transaction.

use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Result as DriverResult;
use oncebox_core::inbox::Failure;
use oncebox_core::message::Message;
use oncebox_core::outbox::{Emit, Event};
use oncebox_sql::PayloadKind;

use super::OperationsHandler;
use super::commands::{Commands, Expect, Origin, Verb, Write};
use super::failure::{Blame, unfit_value};
use super::operation::{Action, Standing};
use crate::classify::{OTHER_COLLECTION, code_of};
use crate::store::MongoStore;
use crate::tx::{MongoTx, refused};

/// The messages of a batch travel to the server in one command, which ends at 16 MB.
const MAX_MESSAGES_BYTES: usize = 15 * 1024 * 1024;
/// How many rows of a pipeline travel together.
const ROWS_TOGETHER: u32 = 10_000;
/// The most that a pipeline may make of the messages of a batch: all of it is held here.
const MAX_ROWS: usize = 100_000;
const MAX_ROWS_BYTES: usize = 32 * 1024 * 1024;
/// Stages that read what others have written.
const READING: [&str; 3] = ["$lookup", "$graphLookup", "$unionWith"];

/// What a batch has to do, and what of it is not done yet.
struct Batch<'b> {
    handler: &'b OperationsHandler,
    fresh: &'b [Message],
    blame: Blame<'b>,
    payload: PayloadKind,
    commands: Commands,
    events: Vec<Event>,
}

pub(super) async fn run(
    handler: &OperationsHandler,
    tx: &mut MongoTx,
    fresh: &[Message],
) -> Result<(), Failure> {
    let operations = handler.operations.as_slice();
    let blame = Blame { operations, messages: fresh.len() };
    let (Standing::Each(payload) | Standing::Batch(payload)) = handler.standing;
    let commands = Commands::new(fresh.len() == 1);
    let mut batch = Batch { handler, fresh, blame, payload, commands, events: Vec::new() };
    let rows = rows(handler, fresh)?;
    match handler.standing {
        Standing::Each(_) => {
            for (at, row) in rows.iter().enumerate() {
                for (number, operation) in operations.iter().enumerate() {
                    batch.add(&operation.action, row, Origin { message: Some(at), operation: number })?;
                }
            }
        }
        Standing::Batch(_) => {
            for (number, operation) in operations.iter().enumerate() {
                let Some(stages) = &operation.messages else {
                    for (at, row) in rows.iter().enumerate() {
                        batch.add(&operation.action, row, Origin { message: Some(at), operation: number })?;
                    }
                    continue;
                };
                if reads(stages) {
                    batch.send(tx).await?;
                }
                let origin = Origin { message: None, operation: number };
                let made = aggregate(tx, stages, &rows, batch.blame, origin).await?;
                for row in &made {
                    batch.add(&operation.action, row, origin)?;
                }
            }
        }
    }
    batch.send(tx).await?;
    batch.emit(tx).await
}

/// What the operations see of the messages. What is used and not as it should be rejects its message, before anything runs.
fn rows(handler: &OperationsHandler, fresh: &[Message]) -> Result<Vec<Document>, Failure> {
    let row = |(at, message)| {
        let unfit = |why: String| Failure { at: Some(at), error: unfit_value("reading the message", &why) };
        handler.wanted.values(message).map_err(unfit)
    };
    fresh.iter().enumerate().map(row).collect()
}

fn reads(stages: &[Document]) -> bool {
    let text = stages.iter().map(ToString::to_string).collect::<String>();
    READING.iter().any(|stage| text.contains(stage))
}

/// What a pipeline makes of the messages.
async fn aggregate(
    tx: &mut MongoTx,
    stages: &[Document],
    rows: &[Document],
    blame: Blame<'_>,
    origin: Origin,
) -> Result<Vec<Document>, Failure> {
    let mut bytes = 0;
    for (at, row) in rows.iter().enumerate() {
        let origin = Origin { message: Some(at), ..origin };
        bytes += raw(row).map_err(|why| blame.unfit(origin, &why))?.as_bytes().len() + 8;
    }
    if bytes > MAX_MESSAGES_BYTES {
        return Err(blame.too_much(origin, "the messages are too large for one pipeline, which takes 15 MiB"));
    }
    let refused = |error| blame.refused(origin.operation, None, &error);
    let answer = run_pipeline(tx, stages, rows).await;
    tx.note(&answer);
    answer.map_err(refused)?.ok_or_else(|| {
        let most = MAX_ROWS_BYTES / (1024 * 1024);
        let why = format!(
            "the pipeline makes more than {MAX_ROWS} rows, or more than {most} MiB; group or filter them"
        );
        blame.too_much(origin, &why)
    })
}

/// `None` if it makes too much.
async fn run_pipeline(
    tx: &mut MongoTx,
    stages: &[Document],
    rows: &[Document],
) -> DriverResult<Option<Vec<Document>>> {
    // The documents would be expressions; what is literal is not evaluated.
    let messages = doc! { "$documents": { "$literal": rows.to_vec() } };
    let pipeline = std::iter::once(messages).chain(stages.iter().cloned());
    let MongoTx { database, session, .. } = tx;
    let mut cursor = database.aggregate(pipeline).batch_size(ROWS_TOGETHER).session(&mut *session).await?;
    let (mut made, mut bytes) = (Vec::new(), 0);
    while cursor.advance(session).await? {
        let row = cursor.current();
        bytes += row.as_bytes().len();
        if made.len() == MAX_ROWS || bytes > MAX_ROWS_BYTES {
            return Ok(None);
        }
        made.push(Document::try_from(row)?);
    }
    Ok(Some(made))
}

impl Batch<'_> {
    /// One operation for one row.
    fn add(&mut self, action: &Action, row: &Document, origin: Origin) -> Result<(), Failure> {
        let unfit = |why: String| self.blame.unfit(origin, &why);
        let (collection, verb, expect, write) = match action {
            Action::Emit(emission) => {
                let message = origin.message.and_then(|at| self.fresh.get(at));
                let event = emission.event(row, message, self.payload).map_err(unfit)?;
                if let Err(error) = event.row() {
                    return Err(self.blame.unfit(origin, &error.to_string()));
                }
                self.events.push(event);
                return Ok(());
            }
            Action::Insert { collection, document } => {
                (collection, Verb::Insert, Expect::Any, document.fill_document(row).map_err(unfit)?)
            }
            Action::Update { collection, filter, with, upsert, many, rows } => {
                let filter = filter.fill(row).map_err(unfit)?;
                let with = with.fill(row).map_err(unfit)?;
                let write = doc! { "q": filter, "u": with, "upsert": *upsert, "multi": *many };
                (collection, Verb::Update, Expect::of(*rows, *many), write)
            }
            Action::Delete { collection, filter, many, rows } => {
                let filter = filter.fill(row).map_err(unfit)?;
                let limit = if *many { 0 } else { 1 };
                (collection, Verb::Delete, Expect::of(*rows, *many), doc! { "q": filter, "limit": limit })
            }
        };
        let write = raw(&with_id(verb, write)).map_err(|why| self.blame.unfit(origin, &why))?;
        self.commands.push(Write { collection, verb, expect, origin, write });
        Ok(())
    }

    /// Sends what has gathered.
    async fn send(&mut self, tx: &mut MongoTx) -> Result<(), Failure> {
        let commands = std::mem::replace(&mut self.commands, Commands::new(self.fresh.len() == 1));
        for command in commands.into_list() {
            let MongoTx { database, session, .. } = tx;
            let written = command.to_raw(self.handler.collections.id(&command.collection));
            let answer = database.run_raw_command(written).session(session).await;
            tx.note(&answer);
            let origin = command.origins.first().copied();
            let alone = origin.as_ref().filter(|_| command.origins.len() == 1);
            let number = origin.map_or(0, |origin| origin.operation);
            if names_another_collection(&answer) {
                let OperationsHandler { store, collections, .. } = self.handler;
                let doing = self.blame.operation(number);
                let error = collections.changed(store, &command.collection, &doing).await;
                return Err(self.blame.of_database(origin.as_ref(), error));
            }
            let answer = answer.map_err(|error| self.blame.refused(number, alone, &error))?;
            self.blame.check(&command, &answer)?;
        }
        Ok(())
    }

    async fn emit(&mut self, tx: &mut MongoTx) -> Result<(), Failure> {
        if self.events.is_empty() {
            return Ok(());
        }
        Emit::<MongoStore>::emit_all(tx, &self.events).await.map_err(Failure::of_batch)
    }
}

/// Whether the collection of this name is not the one that was written to before.
fn names_another_collection(answer: &DriverResult<Document>) -> bool {
    let error = match answer {
        Ok(answer) => refused(answer).err(),
        Err(error) => Some(error.clone()),
    };
    error.is_some_and(|error| code_of(&error) == Some(OTHER_COLLECTION))
}

/// An inserted document has an id, and it comes first.
fn with_id(verb: Verb, write: Document) -> Document {
    if verb != Verb::Insert || write.contains_key("_id") {
        return write;
    }
    let mut document = doc! { "_id": mongodb::bson::oid::ObjectId::new() };
    document.extend(write);
    document
}

fn raw(document: &Document) -> Result<RawDocumentBuf, String> {
    RawDocumentBuf::try_from(document).map_err(|error| error.to_string())
}
