//! Writes that wait to be sent together.

use mongodb::bson::{Bson, Document, deserialize_from_document, doc};
use mongodb::error::{ErrorKind, Result, WriteError, WriteFailure};
use mongodb::{ClientSession, Database};

/// The most writes in one command, and about the most bytes.
const MAX_WRITES: usize = 10_000;
const MAX_BYTES: usize = 12 * 1024 * 1024;

/// One write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Update,
    Delete,
}

impl Kind {
    /// The command, and the name of its list.
    fn command(self) -> (&'static str, &'static str) {
        match self {
            Self::Insert => ("insert", "documents"),
            Self::Update => ("update", "updates"),
            Self::Delete => ("delete", "deletes"),
        }
    }
}

/// A transaction is seen as a whole, so order matters only within a collection: there it is kept, and neighbours of the same
/// kind go in one command.
#[derive(Debug, Default)]
pub(super) struct Writes {
    collections: Vec<(String, Vec<Command>)>,
}

#[derive(Debug)]
struct Command {
    kind: Kind,
    items: Vec<Bson>,
    bytes: usize,
}

impl Writes {
    pub(super) fn is_empty(&self) -> bool {
        self.collections.is_empty()
    }

    pub(super) fn push(&mut self, collection: &str, kind: Kind, item: Document) -> Result<()> {
        let bytes = item.to_vec()?.len();
        let commands = match self.collections.iter_mut().find(|(name, _)| name == collection) {
            Some((_, commands)) => commands,
            None => &mut self.collections.push_mut((collection.to_owned(), Vec::new())).1,
        };
        match commands.last_mut() {
            Some(last)
                if last.kind == kind && last.items.len() < MAX_WRITES && last.bytes + bytes <= MAX_BYTES =>
            {
                last.items.push(Bson::Document(item));
                last.bytes += bytes;
            }
            _ => commands.push(Command { kind, items: vec![Bson::Document(item)], bytes }),
        }
        Ok(())
    }

    pub(super) async fn send(self, database: &Database, session: &mut ClientSession) -> Result<()> {
        for (collection, commands) in self.collections {
            for command in commands {
                let (name, list) = command.kind.command();
                let command = doc! { name: &collection, list: command.items, "ordered": true };
                let answer = database.run_command(command).session(&mut *session).await?;
                refused(&answer)?;
            }
        }
        Ok(())
    }
}

/// A command that wrote nothing is answered as if all were well, with the errors inside.
pub(crate) fn refused(answer: &Document) -> Result<()> {
    let Some(Bson::Document(error)) = answer.get_array("writeErrors").ok().and_then(|errors| errors.first())
    else {
        return Ok(());
    };
    let error: WriteError = deserialize_from_document(error.clone())?;
    Err(ErrorKind::Write(WriteFailure::WriteError(error)).into())
}
