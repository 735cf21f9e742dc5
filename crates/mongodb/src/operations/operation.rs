//! An operation of the configuration, understood.

use std::time::Duration;

use mongodb::bson::{Bson, Document};
use oncebox_core::outbox::check_topic;
use oncebox_sql::{Param, PayloadKind, RowRule, suggest};

use super::compile::Compiler;
use super::json;
use super::place::{Place, Scope};
use super::problem::Problem;
use super::template::Template;

/// One operation of a handler.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Operation {
    pub(super) action: Action,
    /// In `batch`: the pipeline over the messages. Without it every message is a row.
    pub(super) messages: Option<Vec<Document>>,
}

/// What it does for a message or a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    Insert {
        collection: String,
        document: Template,
    },
    Update {
        collection: String,
        filter: Template,
        with: Template,
        upsert: bool,
        many: bool,
        rows: Option<RowRule>,
    },
    Delete {
        collection: String,
        filter: Template,
        many: bool,
        rows: Option<RowRule>,
    },
    Emit(Emission),
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Emission {
    pub(super) topic: String,
    pub(super) key: Option<Template>,
    pub(super) payload: Option<Template>,
    pub(super) headers: Vec<(String, Template)>,
    pub(super) due: Option<Due>,
}

/// When an event is published, if not at once.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Due {
    /// At this time.
    At(Template),
    /// So long after it was written.
    After(Duration),
}

/// Where an operation stands in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// In `each`, with this kind of payload.
    Each(PayloadKind),
    /// In `batch`, with this kind of payload.
    Batch(PayloadKind),
}

/// The collections of the store.
const OURS: [&str; 17] = [
    "oncebox_attempt",
    "oncebox_audit",
    "oncebox_counter",
    "oncebox_dead",
    "oncebox_dead_part",
    "oncebox_horizon",
    "oncebox_inbox",
    "oncebox_migrations",
    "oncebox_outbox",
    "oncebox_paused",
    "oncebox_position",
    "oncebox_position_lane",
    "oncebox_purge",
    "oncebox_relay",
    "oncebox_replayed",
    "oncebox_shard",
    "oncebox_sweep",
];

const VERBS: [&str; 5] = ["update", "upsert", "insert", "delete", "emit"];

impl Operation {
    /// Reads an operation from JSON. The error is everything that is wrong with it.
    pub(super) fn read(text: &str, standing: Standing) -> Result<Self, Vec<Problem>> {
        let wrong = |message: String| {
            vec![Problem { path: Vec::new(), message, fix: "write a table with one operation".to_owned() }]
        };
        let table = match json::read(text) {
            Ok(Bson::Document(table)) => table,
            Ok(_) => return Err(wrong("this is not an operation".to_owned())),
            Err(why) => return Err(wrong(why)),
        };
        let scope = match standing {
            Standing::Each(payload) => Scope::Message(payload),
            Standing::Batch(_) => Scope::Row,
        };
        let mut reader = Reader { table, known: Vec::new(), compiler: Compiler::new(scope) };
        let messages = match standing {
            Standing::Each(_) => None,
            Standing::Batch(_) => reader.messages(),
        };
        let action = reader.action();
        reader.finish();
        match (action, reader.compiler.problems) {
            (Some(action), problems) if problems.is_empty() => Ok(Self { action, messages }),
            (_, problems) => Err(problems),
        }
    }

    /// The collection that it writes.
    pub(super) fn collection(&self) -> Option<&str> {
        match &self.action {
            Action::Insert { collection, .. }
            | Action::Update { collection, .. }
            | Action::Delete { collection, .. } => Some(collection),
            Action::Emit(_) => None,
        }
    }

    /// As it is named in an error.
    pub(super) fn name(&self) -> String {
        match &self.action {
            Action::Insert { collection, .. } => format!("insert into {collection}"),
            Action::Update { collection, upsert: true, .. } => format!("upsert of {collection}"),
            Action::Update { collection, .. } => format!("update of {collection}"),
            Action::Delete { collection, .. } => format!("delete from {collection}"),
            Action::Emit(emission) => format!("emit to {}", emission.topic),
        }
    }

    /// Every place that is filled in.
    pub(super) fn places(&self) -> Vec<&Place> {
        let mut places = Vec::new();
        let mut see = |place| places.push(place);
        match &self.action {
            Action::Insert { document, .. } => document.visit(&mut see),
            Action::Update { filter, with, .. } => {
                filter.visit(&mut see);
                with.visit(&mut see);
            }
            Action::Delete { filter, .. } => filter.visit(&mut see),
            Action::Emit(Emission { key, payload, headers, due, .. }) => {
                if let Some(Due::At(time)) = due {
                    time.visit(&mut see);
                }
                key.iter().chain(payload).for_each(|template| template.visit(&mut see));
                headers.iter().for_each(|(_, template)| template.visit(&mut see));
            }
        }
        places
    }
}

/// Takes the keys of an operation one by one; what is left at the end is unknown.
struct Reader {
    table: Document,
    known: Vec<&'static str>,
    compiler: Compiler,
}

impl Reader {
    fn take(&mut self, key: &'static str) -> Option<Bson> {
        self.known.push(key);
        self.table.remove(key)
    }

    fn required(&mut self, key: &'static str, fix: &str) -> Option<Bson> {
        let value = self.take(key);
        if value.is_none() {
            self.compiler.at(key, |compiler| compiler.report("it is missing", fix));
        }
        value
    }

    fn action(&mut self) -> Option<Action> {
        let given: Vec<_> = VERBS.into_iter().filter(|verb| self.table.contains_key(verb)).collect();
        let [verb] = given.as_slice() else {
            // Whatever else is there belongs to an operation that is not known.
            if given.is_empty() {
                let near = self.table.keys().find_map(|key| suggest::nearest(key, VERBS));
                let all = VERBS.join(", ");
                let fix = near.map_or_else(
                    || format!("write one of {all}"),
                    |near| format!("did you mean `{near}`? There are {all}"),
                );
                self.compiler.report("this is no operation", fix);
            } else {
                self.compiler.report(
                    format!("{} are {} operations", given.join(" and "), given.len()),
                    "write one of them",
                );
            }
            self.table.clear();
            return None;
        };
        let target = self.take(verb);
        let name = self.compiler.at(verb, |compiler| match (*verb, target) {
            ("emit", Some(Bson::String(topic))) => match check_topic(&topic) {
                Ok(()) => Some(topic),
                Err(error) => {
                    compiler.report(error.to_string(), "write the name of a topic; it is never filled in");
                    None
                }
            },
            (_, Some(Bson::String(name))) => collection(compiler, name),
            _ => {
                compiler
                    .report("this is not a text", "write the name of a collection, or of a topic for `emit`");
                None
            }
        });
        match *verb {
            "insert" => {
                let document = self.required("document", "write { _id = \":id\", … }");
                let document = document.and_then(|document| self.document("document", &document));
                Some(Action::Insert { collection: name?, document: document? })
            }
            "delete" => {
                let filter = self.filter();
                let (many, rows) = (self.many(), self.rows());
                let rows = self.sensible(rows, many);
                Some(Action::Delete { collection: name?, filter: filter?, many, rows })
            }
            "emit" => {
                let emission = self.emission();
                Some(Action::Emit(Emission { topic: name?, ..emission }))
            }
            _ => {
                let upsert = *verb == "upsert";
                let (filter, with) = (self.filter(), self.with());
                let many = !upsert && self.many();
                let rows = if upsert { None } else { self.rows() };
                let rows = self.sensible(rows, many);
                Some(Action::Update { collection: name?, filter: filter?, with: with?, upsert, many, rows })
            }
        }
    }

    fn filter(&mut self) -> Option<Template> {
        let value = self.required("filter", "write { _id = \":payload.sku\" }, or { } for all documents")?;
        self.compiler.at("filter", |compiler| match &value {
            Bson::Document(filter) => Some(compiler.filter(filter)),
            _ => {
                compiler.report(
                    "this is not a filter",
                    "write { field = value }; a filter is never filled in as a whole",
                );
                None
            }
        })
    }

    fn with(&mut self) -> Option<Template> {
        let fix = "write modifiers, { \"$inc\" = { n = 1 } }, or a pipeline, [ { \"$set\" = { … } } ]";
        let value = self.required("with", fix)?;
        self.compiler.at("with", |compiler| match &value {
            Bson::Document(modifiers) => Some(compiler.modifiers(modifiers)),
            Bson::Array(stages) => Some(compiler.pipeline(stages)),
            _ => {
                compiler.report("this is not an update", fix);
                None
            }
        })
    }

    /// A document, or a value that is one.
    fn document(&mut self, key: &'static str, value: &Bson) -> Option<Template> {
        self.compiler.at(key, |compiler| {
            let before = compiler.problems.len();
            let made = compiler.data(value);
            let fits = matches!(
                made,
                Template::Document(_) | Template::Fill { .. } | Template::Fixed(Bson::Document(_))
            );
            if !fits && compiler.problems.len() == before {
                compiler.report("this is not a document", "write { field = value }");
            }
            Some(made)
        })
    }

    fn emission(&mut self) -> Emission {
        let key = self.take("key").map(|value| self.compiler.at("key", |compiler| compiler.data(&value)));
        let payload =
            self.take("payload").map(|value| self.compiler.at("payload", |compiler| compiler.data(&value)));
        let headers = match self.take("headers") {
            None => Vec::new(),
            Some(Bson::Document(headers)) => headers
                .iter()
                .map(|(name, value)| {
                    let made = self.compiler.at("headers", |this| this.at(name, |this| this.data(value)));
                    (name.clone(), made)
                })
                .collect(),
            Some(_) => {
                self.compiler.at("headers", |compiler| {
                    compiler.report("this is not a table", "write { name = \":payload.x\" }");
                });
                Vec::new()
            }
        };
        Emission { topic: String::new(), key, payload, headers, due: self.due() }
    }

    fn due(&mut self) -> Option<Due> {
        let at =
            self.take("deliver_at").map(|at| self.compiler.at("deliver_at", |compiler| compiler.data(&at)));
        let delay = self.take("delay");
        if let (Some(_), Some(_)) = (&at, &delay) {
            let both = "`delay` and `deliver_at` both say when";
            self.compiler.at("delay", |compiler| compiler.report(both, "write one of them"));
            return None;
        }
        let Some(delay) = delay else { return at.map(Due::At) };
        let known = delay.as_str().and_then(|text| humantime::parse_duration(text).ok());
        if known.is_none() {
            self.compiler
                .at("delay", |compiler| compiler.report("this is not a duration", "write \"90s\" or \"1h\""));
        }
        known.map(Due::After)
    }

    fn many(&mut self) -> bool {
        match self.take("many") {
            None => false,
            Some(Bson::Boolean(many)) => many,
            Some(_) => {
                self.compiler
                    .at("many", |compiler| compiler.report("this is not a boolean", "write true or false"));
                false
            }
        }
    }

    fn rows(&mut self) -> Option<RowRule> {
        let value = self.take("rows")?;
        let rule = match &value {
            Bson::Int32(rows) => u64::try_from(*rows).ok().map(RowRule::exactly),
            Bson::Int64(rows) => u64::try_from(*rows).ok().map(RowRule::exactly),
            Bson::String(text) => text.parse().ok(),
            _ => None,
        };
        if rule.is_none() {
            let fix = "write a number, or a range such as \"1..\", \"..5\" or \"1..3\" (both ends included)";
            self.compiler
                .at("rows", |compiler| compiler.report("this is not a number or a range of numbers", fix));
        }
        rule
    }

    /// Refuses a rule that one document cannot follow.
    fn sensible(&mut self, rows: Option<RowRule>, many: bool) -> Option<RowRule> {
        if let Some(rule) = rows
            && !many
            && !rule.allows(0)
            && !rule.allows(1)
        {
            self.compiler.at("rows", |compiler| {
                compiler.report(
                    format!("one document at most is matched, so {rule} can never be"),
                    "write `many = true` to change all that the filter matches",
                );
            });
        }
        rows
    }

    fn messages(&mut self) -> Option<Vec<Document>> {
        let value = self.take("messages")?;
        let mut compiler = Compiler::new(Scope::Nothing);
        let stages = compiler.at("messages", |compiler| match &value {
            Bson::Array(stages) => match compiler.pipeline(stages) {
                Template::Fixed(Bson::Array(stages)) => stages,
                _ => Vec::new(),
            },
            _ => {
                compiler.report("this is not a pipeline", "write [ { \"$group\" = { … } } ]");
                Vec::new()
            }
        });
        self.compiler.problems.append(&mut compiler.problems);
        Some(stages.into_iter().filter_map(|stage| stage.as_document().cloned()).collect())
    }

    fn finish(&mut self) {
        let unknown: Vec<String> = self.table.keys().cloned().collect();
        for key in unknown {
            let fix = match suggest::nearest(&key, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? Known here: {}", self.known.join(", ")),
                None => format!("remove it; known here: {}", self.known.join(", ")),
            };
            self.compiler.at(&key, |compiler| compiler.report("this key is not known", fix));
        }
    }
}

/// The name of a collection of the application.
fn collection(compiler: &mut Compiler, name: String) -> Option<String> {
    let (why, fix) = if name.starts_with(':') {
        ("the name of a collection is never filled in", "write the name")
    } else if name.is_empty() || name.contains(['$', '\0']) || name.starts_with("system.") {
        ("this is not the name of a collection", "write the name of a collection of the database")
    } else if OURS.contains(&name.as_str()) {
        ("this collection belongs to oncebox", "write to one of yours; an event is written by `emit`")
    } else {
        return Some(name);
    };
    compiler.report(why, fix);
    None
}

/// Whether a place is a whole payload.
pub(super) fn is_payload(template: &Template) -> bool {
    matches!(template, Template::Fill { place, kind: None, .. } if place.is(Param::Payload))
}
