//! What can be done, and what is said of it. One table: forms, the API and its description are made from it.

use crate::edit::{self, Edit};
use crate::fields::Fields;

/// Something that changes the database, or would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Lets a consumer take nothing new.
    Pause {
        /// The consumer.
        consumer: String,
        /// Why.
        reason: Option<String>,
    },
    /// Lets a paused consumer go on.
    Resume {
        /// The consumer.
        consumer: String,
    },
    /// Moves positions.
    MovePosition(PositionMove),
    /// Runs the handler on dead letters again.
    ReplayDead(Replay),
    /// Changes a dead letter, and replays it if that is wanted.
    EditDead(Edit),
    /// Removes dead letters for good.
    DropDead {
        /// Which.
        numbers: Vec<i64>,
        /// Why.
        reason: Option<String>,
    },
    /// Makes held, parked and delayed events pending.
    PublishNow {
        /// Which.
        numbers: Vec<i64>,
    },
    /// Gives up events that wait to be published.
    ParkEvents {
        /// Which.
        numbers: Vec<i64>,
        /// Why.
        reason: String,
    },
    /// Removes events for good.
    DropEvents {
        /// Which.
        numbers: Vec<i64>,
    },
    /// Removes receipts and published events whose time is over.
    Purge {
        /// Only count.
        dry_run: bool,
    },
}

/// Which dead letters are replayed, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replay {
    /// These; or else those of the group.
    pub numbers: Vec<i64>,
    /// Letters of one consumer whose errors read alike.
    pub group: Option<String>,
    /// At most so many.
    pub limit: Option<u64>,
    /// At most so many in a second.
    pub rate: Option<u32>,
    /// Also if an earlier letter of the same key is there.
    pub force: bool,
    /// Only say what would become of them.
    pub dry_run: bool,
}

/// Where positions go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionMove {
    /// The consumer.
    pub consumer: String,
    /// The topic.
    pub topic: String,
    /// One partition; without it all of the topic.
    pub partition: Option<i32>,
    /// An offset, `earliest`, `latest` or a time.
    pub to: String,
    /// Also if messages are skipped that were not applied.
    pub accept_loss: bool,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// What became of an [`Action`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In one sentence.
    pub said: String,
    /// How many things were changed, or would be.
    pub count: u64,
    /// What failed, or what else there is to know, one line each.
    pub details: Vec<String>,
    /// Whether somebody should look at the details: something was not done.
    pub incomplete: bool,
}

impl Outcome {
    /// It is done, and that is all there is to say.
    pub fn done(count: u64, said: impl Into<String>) -> Self {
        Self { said: said.into(), count, ..Self::default() }
    }
}

/// What a field of an action holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Numbers,
    /// Several texts, or one with several lines.
    Texts,
    Flag,
}

/// A field of an action.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    pub(crate) help: &'static str,
}

/// An action by its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) fields: &'static [Field],
    read: fn(&Fields) -> Result<Action, String>,
}

const CONSUMER: Field = required("consumer", Kind::Text, "the consumer");
const NUMBERS: Field = required("numbers", Kind::Numbers, "which ones, by their numbers; at most 1000");
const DRY_RUN: Field = optional("dry_run", Kind::Flag, "only say what would happen");

pub(crate) const fn required(name: &'static str, kind: Kind, help: &'static str) -> Field {
    Field { name, kind, required: true, help }
}

pub(crate) const fn optional(name: &'static str, kind: Kind, help: &'static str) -> Field {
    Field { name, kind, required: false, help }
}

/// All of them.
pub(crate) const ACTIONS: &[Spec] = &[
    Spec {
        name: "pause",
        help: "Let a consumer take nothing new, in every process, until it is resumed.",
        fields: &[CONSUMER, optional("reason", Kind::Text, "why, for whoever finds it paused")],
        read: |fields| {
            Ok(Action::Pause { consumer: fields.text("consumer")?, reason: fields.maybe("reason") })
        },
    },
    Spec {
        name: "resume",
        help: "Let a paused consumer go on.",
        fields: &[CONSUMER],
        read: |fields| Ok(Action::Resume { consumer: fields.text("consumer")? }),
    },
    Spec {
        name: "move-position",
        help: "Let a consumer go on from another place. Back is safe: receipts skip what was applied.",
        fields: &[
            CONSUMER,
            required("topic", Kind::Text, "the topic"),
            optional("partition", Kind::Number, "one partition; without it all of the topic"),
            required("to", Kind::Text, "an offset, earliest, latest, or a time such as 2026-11-01T00:00:00Z"),
            optional("accept_loss", Kind::Flag, "also if messages are skipped that were not applied"),
            optional("confirm", Kind::Text, "the name of the consumer again, unless it is a dry run"),
            DRY_RUN,
        ],
        read: read_move,
    },
    Spec {
        name: "replay-dead",
        help: "Run the handler on dead letters again; those that succeed are gone.",
        fields: &[
            optional("numbers", Kind::Numbers, "which ones, by their numbers; at most 1000; or else a group"),
            optional("group", Kind::Text, "all of this group"),
            optional("limit", Kind::Number, "at most so many"),
            optional("rate", Kind::Number, "at most so many in a second"),
            optional("force", Kind::Flag, "also if an earlier letter of the same key is there"),
            DRY_RUN,
        ],
        read: read_replay,
    },
    Spec {
        name: "edit-dead",
        help: "Change a dead letter. What arrived is kept beside it. What is not named stays as it is.",
        fields: edit::FIELDS,
        read: |fields| Edit::read(fields).map(Action::EditDead),
    },
    Spec {
        name: "drop-dead",
        help: "Remove dead letters for good. Their receipts stay, so a copy is still skipped.",
        fields: &[NUMBERS, optional("reason", Kind::Text, "why, for the audit")],
        read: |fields| {
            Ok(Action::DropDead { numbers: fields.numbers("numbers")?, reason: fields.maybe("reason") })
        },
    },
    Spec {
        name: "publish-now",
        help: "Make parked, held and delayed events pending, so that the relay tries them now.",
        fields: &[NUMBERS],
        read: |fields| Ok(Action::PublishNow { numbers: fields.numbers("numbers")? }),
    },
    Spec {
        name: "park-events",
        help: "Give up events that wait to be published, so that what is behind them goes on.",
        fields: &[
            NUMBERS,
            required("reason", Kind::Text, "why: it stands beside the event, and in the audit"),
        ],
        read: |fields| {
            Ok(Action::ParkEvents { numbers: fields.numbers("numbers")?, reason: fields.text("reason")? })
        },
    },
    Spec {
        name: "drop-events",
        help: "Remove parked events for good. They will never be published.",
        fields: &[NUMBERS],
        read: |fields| Ok(Action::DropEvents { numbers: fields.numbers("numbers")? }),
    },
    Spec {
        name: "purge",
        help: "Remove the receipts and the published events whose time is over, now.",
        fields: &[DRY_RUN],
        read: |fields| Ok(Action::Purge { dry_run: fields.flag("dry_run")? }),
    },
];

fn read_replay(fields: &Fields) -> Result<Action, String> {
    let group = fields.maybe("group");
    let numbers = match &group {
        Some(_) if fields.maybe("numbers").is_some() => {
            return Err("`numbers` and `group` mean different letters: say one of them".to_owned());
        }
        Some(_) => Vec::new(),
        None => fields.numbers("numbers")?,
    };
    let (limit, rate) = (fields.number("limit")?, fields.number("rate")?);
    if limit == Some(0) || rate == Some(0) {
        return Err("`limit` and `rate` are at least 1".to_owned());
    }
    let (force, dry_run) = (fields.flag("force")?, fields.flag("dry_run")?);
    Ok(Action::ReplayDead(Replay { numbers, group, limit, rate, force, dry_run }))
}

fn read_move(fields: &Fields) -> Result<Action, String> {
    let wanted = PositionMove {
        consumer: fields.text("consumer")?,
        topic: fields.text("topic")?,
        partition: fields.number("partition")?,
        to: fields.text("to")?,
        accept_loss: fields.flag("accept_loss")?,
        dry_run: fields.flag("dry_run")?,
    };
    if !wanted.dry_run && fields.maybe("confirm").as_deref() != Some(wanted.consumer.as_str()) {
        return Err(format!(
            "write the name of the consumer, {}, into `confirm`: nothing was moved",
            wanted.consumer
        ));
    }
    Ok(Action::MovePosition(wanted))
}

impl Action {
    /// The action of this name with these fields; what is wrong with them otherwise. `None` if there is no such action.
    pub(crate) fn read(name: &str, fields: &Fields) -> Option<Result<Self, String>> {
        let spec = ACTIONS.iter().find(|spec| spec.name == name)?;
        let known: Vec<&str> = spec.fields.iter().map(|field| field.name).collect();
        // Who has typed why something is dropped and then presses Enter means another action than the form does.
        let of_it = fields.only(&known).map_err(|wrong| format!("{name}: {wrong}; nothing was done"));
        Some(of_it.and_then(|()| (spec.read)(fields)))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pause { .. } => "pause",
            Self::Resume { .. } => "resume",
            Self::MovePosition(_) => "move-position",
            Self::ReplayDead(_) => "replay-dead",
            Self::EditDead(_) => "edit-dead",
            Self::DropDead { .. } => "drop-dead",
            Self::PublishNow { .. } => "publish-now",
            Self::ParkEvents { .. } => "park-events",
            Self::DropEvents { .. } => "drop-events",
            Self::Purge { .. } => "purge",
        }
    }

    /// The same without what a message holds: two hundred of those would take much memory, and nobody needs them.
    pub(crate) fn remembered(&self) -> Self {
        match self {
            Self::EditDead(Edit { number, seen, replay, .. }) => {
                Self::EditDead(Edit { number: *number, seen: *seen, replay: *replay, ..Edit::default() })
            }
            other => other.clone(),
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        matches!(self, Self::Purge { dry_run: true })
            || matches!(self, Self::MovePosition(wanted) if wanted.dry_run)
            || matches!(self, Self::ReplayDead(wanted) if wanted.dry_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, pairs: &[(&str, &str)]) -> Result<Action, String> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Action::read(name, &pairs.collect()).expect("there is such an action")
    }

    #[test]
    fn every_action_has_its_own_name() {
        for spec in ACTIONS {
            let all = [
                ("consumer", "stock"),
                ("topic", "orders"),
                ("to", "earliest"),
                ("numbers", "1,2"),
                ("number", "1"),
                ("seen", "0"),
                ("reason", "why"),
                ("confirm", "stock"),
            ];
            let mine: Vec<_> =
                all.into_iter().filter(|(name, _)| spec.fields.iter().any(|f| f.name == *name)).collect();
            assert_eq!(read(spec.name, &mine).unwrap().name(), spec.name);
        }
        assert!(Action::read("format-disk", &Fields::default()).is_none());
    }

    #[test]
    fn what_is_missing_unknown_or_malformed_is_said() {
        for (name, pairs, words) in [
            ("pause", &[][..], "consumer"),
            ("pause", &[("consumer", "stock"), ("because", "x")], "because"),
            ("replay-dead", &[("numbers", "")], "numbers"),
            ("replay-dead", &[("numbers", "1,x")], "numbers"),
            ("replay-dead", &[("numbers", "1"), ("group", "a")], "group"),
            ("replay-dead", &[("group", "a"), ("rate", "0")], "rate"),
            ("replay-dead", &[("numbers", "1"), ("force", "perhaps")], "force"),
            ("replay-dead", &[("numbers", "1"), ("reason", "a typo")], "nothing was done"),
            ("park-events", &[("numbers", "1")], "reason"),
            ("edit-dead", &[("number", "1")], "seen"),
        ] {
            let problem = read(name, pairs).unwrap_err();
            assert!(problem.contains(words), "{name} {pairs:?}: {problem}");
        }
    }

    #[test]
    fn a_move_wants_the_name_again_but_its_dry_run_does_not() {
        let base = [("consumer", "stock"), ("topic", "orders"), ("to", "0")];
        let with = |more: &[(&'static str, &'static str)]| read("move-position", &[&base[..], more].concat());
        assert!(with(&[]).unwrap_err().contains("stock"));
        assert!(with(&[("confirm", "Stock")]).is_err());
        assert!(with(&[("confirm", "stock")]).is_ok());
        assert!(with(&[("dry_run", "true")]).unwrap().is_dry_run());
    }
}
