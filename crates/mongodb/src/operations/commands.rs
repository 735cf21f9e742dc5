//! The writes of a batch, grouped into as few commands as their order allows.
//!
//! Order matters within one collection only, since a transaction is seen as a whole. So the writes of a collection are kept in
//! their order, and those that follow each other and are of one kind become one command.

use std::collections::HashMap;

use mongodb::bson::raw::cstr;
use mongodb::bson::{Binary, RawArrayBuf, RawDocumentBuf, rawdoc};
use oncebox_sql::RowRule;

/// A command ends at 16 MB with all that is in it.
const MAX_BYTES: usize = 8 * 1024 * 1024;
const MAX_WRITES: usize = 10_000;

/// What kind of command it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Insert,
    Update,
    Delete,
}

/// How many documents a write has to match. The server counts for a whole command only, so writes of one command have to be
/// told by their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// Any number.
    Any,
    /// One, and it cannot be more: as many as there are writes.
    One(RowRule),
    /// None: nothing at all.
    Nothing(RowRule),
    /// What no sum can tell, so the write is a command of its own.
    Alone(RowRule),
}

impl Expect {
    pub(super) fn of(rows: Option<RowRule>, many: bool) -> Self {
        match rows {
            None => Self::Any,
            Some(rule) if many => Self::Alone(rule),
            Some(rule) => match (rule.allows(0), rule.allows(1)) {
                (true, true) => Self::Any,
                (false, true) => Self::One(rule),
                (true, false) => Self::Nothing(rule),
                (false, false) => Self::Alone(rule),
            },
        }
    }
}

/// Where a write comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    /// The message, if it is one.
    pub(super) message: Option<usize>,
    /// The operation, counted from 0.
    pub(super) operation: usize,
}

/// One command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) collection: String,
    pub(super) verb: Verb,
    pub(super) expect: Expect,
    pub(super) origins: Vec<Origin>,
    writes: Vec<RawDocumentBuf>,
    bytes: usize,
}

impl Command {
    /// As it is sent, to the collection of this identity if it is known.
    pub(super) fn to_raw(&self, id: Option<Binary>) -> RawDocumentBuf {
        let mut writes = RawArrayBuf::new();
        for write in &self.writes {
            writes.push(write.clone());
        }
        let collection = self.collection.as_str();
        let mut command = match self.verb {
            Verb::Insert => rawdoc! { "insert": collection, "documents": writes, "ordered": true },
            Verb::Update => rawdoc! { "update": collection, "updates": writes, "ordered": true },
            Verb::Delete => rawdoc! { "delete": collection, "deletes": writes, "ordered": true },
        };
        if let Some(id) = id {
            command.append(cstr!("collectionUUID"), id);
        }
        command
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.writes.len() < MAX_WRITES && self.bytes + bytes <= MAX_BYTES
    }
}

/// A write, and where it goes.
#[derive(Debug)]
pub(super) struct Write<'o> {
    pub(super) collection: &'o str,
    pub(super) verb: Verb,
    pub(super) expect: Expect,
    pub(super) origin: Origin,
    pub(super) write: RawDocumentBuf,
}

/// The commands of a batch, in an order in which they can be sent.
#[derive(Debug, Default)]
pub(super) struct Commands {
    list: Vec<Command>,
    /// The last command of each collection.
    last: HashMap<String, usize>,
    /// Whether a write that is counted is a command of its own, so that the count is exact.
    exact: bool,
}

impl Commands {
    pub(super) fn new(exact: bool) -> Self {
        Self { exact, ..Self::default() }
    }

    pub(super) fn push(&mut self, write: Write<'_>) {
        let Write { collection, verb, expect, origin, write } = write;
        let bytes = write.as_bytes().len() + 8;
        let apart = matches!(expect, Expect::Alone(_)) || (self.exact && expect != Expect::Any);
        if let Some(command) = self.last.get(collection).and_then(|at| self.list.get_mut(*at))
            && !apart
            && command.verb == verb
            && command.expect == expect
            && command.has_room(bytes)
        {
            command.origins.push(origin);
            command.writes.push(write);
            command.bytes += bytes;
            return;
        }
        self.last.insert(collection.to_owned(), self.list.len());
        let (collection, origins, writes) = (collection.to_owned(), vec![origin], vec![write]);
        self.list.push(Command { collection, verb, expect, origins, writes, bytes });
    }

    pub(super) fn into_list(self) -> Vec<Command> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(
        commands: &mut Commands,
        collection: &str,
        verb: Verb,
        rows: Option<RowRule>,
        message: usize,
        bytes: usize,
    ) {
        let origin = Origin { message: Some(message), operation: 0 };
        let write = rawdoc! { "x": "x".repeat(bytes) };
        commands.push(Write { collection, verb, expect: Expect::of(rows, false), origin, write });
    }

    fn shape(commands: Commands) -> Vec<(String, Verb, usize)> {
        commands.into_list().into_iter().map(|c| (c.collection, c.verb, c.origins.len())).collect()
    }

    #[test]
    fn writes_of_one_kind_are_one_command() {
        let mut commands = Commands::new(false);
        for message in 0..500 {
            push(&mut commands, "stock", Verb::Update, Some(RowRule::exactly(1)), message, 10);
            push(&mut commands, "ledger", Verb::Insert, None, message, 10);
        }
        let expected = [("stock".to_owned(), Verb::Update, 500), ("ledger".to_owned(), Verb::Insert, 500)];
        assert_eq!(shape(commands), expected);
    }

    #[test]
    fn order_within_a_collection_is_kept() {
        let mut commands = Commands::new(false);
        let one = Some(RowRule::exactly(1));
        for (verb, rows) in [
            (Verb::Insert, None),
            (Verb::Update, None),
            (Verb::Update, one),
            (Verb::Insert, None),
            (Verb::Insert, None),
        ] {
            push(&mut commands, "a", verb, rows, 0, 10);
            push(&mut commands, "b", Verb::Insert, None, 0, 10);
        }
        let found: Vec<_> =
            shape(commands).into_iter().filter(|(name, ..)| name == "a").map(|(_, v, n)| (v, n)).collect();
        assert_eq!(found, [(Verb::Insert, 1), (Verb::Update, 1), (Verb::Update, 1), (Verb::Insert, 2)]);
    }

    #[test]
    fn a_command_is_bounded_and_counts_are_exact_when_asked_for() {
        let mut commands = Commands::new(false);
        for message in 0..9 {
            push(&mut commands, "a", Verb::Insert, None, message, 1024 * 1024);
        }
        assert_eq!(shape(commands).iter().map(|(.., n)| *n).collect::<Vec<_>>(), [7, 2]);
        let mut commands = Commands::new(true);
        for _ in 0..2 {
            push(&mut commands, "a", Verb::Update, Some(RowRule::exactly(1)), 0, 1);
        }
        assert_eq!(shape(commands).len(), 2);
    }

    #[test]
    fn what_a_sum_can_tell() {
        let rule = |text: &str| text.parse::<RowRule>().ok();
        assert_eq!(Expect::of(rule("0..1"), false), Expect::Any);
        assert!(matches!(Expect::of(rule("1.."), false), Expect::One(_)));
        assert!(matches!(Expect::of(rule("0"), false), Expect::Nothing(_)));
        assert!(matches!(Expect::of(rule("0..1"), true), Expect::Alone(_)));
    }
}
