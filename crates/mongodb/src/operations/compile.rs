//! From a value of the configuration to a template, with everything that is wrong with it.
//!
//! The operators of filters and the modifiers of updates are known by name: where one of them takes a value, a value may be
//! filled in; where it takes operators, field names or code, nothing may. Expressions are left to the server, since a literal is
//! safe everywhere in them.

use mongodb::bson::{Bson, Document};
use oncebox_sql::suggest;

use super::place::{self, Scope, Text};
use super::problem::Problem;
use super::template::{How, Template};
use super::typed;

/// Operators of a filter that take a value.
const OF_VALUES: [&str; 16] = [
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$exists",
    "$type",
    "$size",
    "$mod",
    "$regex",
    "$options",
    "$bitsAllClear",
    "$bitsAllSet",
    "$bitsAnyClear",
    "$bitsAnySet",
];
/// Those that take a list of values.
const OF_LISTS: [&str; 3] = ["$in", "$nin", "$all"];
/// Those that take more operators.
const OF_OPERATORS: [&str; 2] = ["$not", "$elemMatch"];
/// Those about places.
const OF_SHAPES: [&str; 4] = ["$geoIntersects", "$geoWithin", "$near", "$nearSphere"];
/// What may stand in a filter beside fields.
const OF_FILTERS: [&str; 6] = ["$and", "$or", "$nor", "$expr", "$comment", "$text"];
/// Modifiers that take a value for a field.
const SETTING: [&str; 6] = ["$set", "$setOnInsert", "$inc", "$mul", "$min", "$max"];
/// Modifiers that take an element of an array.
const ADDING: [&str; 2] = ["$push", "$addToSet"];
/// The other modifiers.
const OTHERS: [&str; 7] = ["$pull", "$pullAll", "$unset", "$pop", "$bit", "$currentDate", "$rename"];

/// Whether, and how, something may be filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    As(How),
    /// Here stands a part of the operation.
    Never,
}

/// Makes templates and collects what is wrong.
#[derive(Debug)]
pub(super) struct Compiler {
    scope: Scope,
    path: Vec<String>,
    /// Whether what is filled in chooses documents, or elements.
    selects: bool,
    pub(super) problems: Vec<Problem>,
}

impl Compiler {
    pub(super) fn new(scope: Scope) -> Self {
        Self { scope, path: Vec::new(), selects: false, problems: Vec::new() }
    }

    pub(super) fn report(&mut self, message: impl Into<String>, fix: impl Into<String>) {
        self.problems.push(Problem { path: self.path.clone(), message: message.into(), fix: fix.into() });
    }

    /// Does something with what is below a key.
    pub(super) fn at<T>(&mut self, step: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step.to_owned());
        let done = work(self);
        self.path.pop();
        done
    }

    /// A value that is stored as it is.
    pub(super) fn data(&mut self, value: &Bson) -> Template {
        self.value(value, Fill::As(How::Plain))
    }

    /// Stages of a pipeline that reads or changes documents.
    pub(super) fn pipeline(&mut self, stages: &[Bson]) -> Template {
        if stages.is_empty() {
            self.report("the pipeline is empty", "write at least one stage");
        }
        let stages = stages.iter().enumerate().map(|(nth, stage)| {
            self.at(&nth.to_string(), |this| {
                match stage {
                    Bson::Document(stage) if stage.len() == 1 => {
                        for key in stage.keys().filter(|key| ["$out", "$merge"].contains(&key.as_str())) {
                            this.report(
                                format!("`{key}` writes, which no pipeline does in a transaction"),
                                "remove it; what comes out of the pipeline is written by the operation",
                            );
                        }
                    }
                    _ => this.report("this is not a stage", "write { \"$set\" = { … } } or another stage"),
                }
                this.value(stage, Fill::As(How::Literal))
            })
        });
        joined_array(stages.collect())
    }

    /// Does something with what chooses documents.
    fn selecting<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.selects, true);
        let done = work(self);
        self.selects = before;
        done
    }

    /// A filter.
    pub(super) fn filter(&mut self, filter: &Document) -> Template {
        self.selecting(|this| this.conditions(filter))
    }

    fn conditions(&mut self, filter: &Document) -> Template {
        let fields = filter.iter().map(|(key, value)| {
            let made = self.at(key, |this| match key.as_str() {
                "$and" | "$or" | "$nor" => this.filters(value),
                "$expr" => this.value(value, Fill::As(How::Literal)),
                "$text" if matches!(value, Bson::Document(_)) => this.data(value),
                key if key.starts_with('$') => {
                    if !OF_FILTERS.contains(&key) {
                        this.unknown("operator", key, &OF_FILTERS);
                    }
                    this.value(value, Fill::Never)
                }
                _ => this.condition(value),
            });
            (self.name(key), made)
        });
        joined_document(fields.collect())
    }

    fn filters(&mut self, value: &Bson) -> Template {
        let Bson::Array(items) = value else {
            self.report("this is not an array of filters", "write [ { … }, { … } ]");
            return Template::Fixed(Bson::Null);
        };
        let items = items.iter().enumerate().map(|(nth, item)| {
            self.at(&nth.to_string(), |this| match item {
                Bson::Document(filter) => this.filter(filter),
                _ => {
                    this.report("this is not a filter", "write { field = value }");
                    Template::Fixed(Bson::Null)
                }
            })
        });
        joined_array(items.collect())
    }

    /// What a field is compared with.
    fn condition(&mut self, value: &Bson) -> Template {
        match value {
            Bson::Document(document) if is_operators(document) => self.operators(document),
            Bson::Document(_) | Bson::Array(_) => self.data(value),
            _ => self.value(value, Fill::As(How::Equal)),
        }
    }

    fn operators(&mut self, operators: &Document) -> Template {
        let fields = operators.iter().map(|(key, value)| {
            let made = self.at(key, |this| match (key.as_str(), value) {
                (key, _) if OF_VALUES.contains(&key) => this.data(value),
                (key, Bson::Array(items)) if OF_LISTS.contains(&key) => {
                    let items = items.iter().enumerate().map(|(nth, item)| {
                        this.at(&nth.to_string(), |this| match item {
                            Bson::Document(document) if is_operators(document) => this.operators(document),
                            item => this.value(item, Fill::As(How::NoOperators)),
                        })
                    });
                    joined_array(items.collect())
                }
                (key, _) if OF_LISTS.contains(&key) => this.value(value, Fill::As(How::NoOperators)),
                ("$not", Bson::Document(document)) => this.operators(document),
                ("$elemMatch", Bson::Document(document)) => match document.keys().next() {
                    Some(first) if OF_FILTERS.contains(&first.as_str()) => this.filter(document),
                    _ if is_operators(document) => this.operators(document),
                    _ => this.filter(document),
                },
                (key, Bson::Document(_)) if OF_SHAPES.contains(&key) => this.data(value),
                (key, _) => {
                    let known: Vec<_> = [OF_VALUES.as_slice(), &OF_LISTS, &OF_OPERATORS, &OF_SHAPES].concat();
                    if !known.contains(&key) {
                        this.unknown("operator", key, &known);
                    }
                    this.value(value, Fill::Never)
                }
            });
            (key.clone(), made)
        });
        joined_document(fields.collect())
    }

    /// What an update does: modifiers.
    pub(super) fn modifiers(&mut self, modifiers: &Document) -> Template {
        if modifiers.is_empty() {
            self.report("it changes nothing", "write { \"$set\" = { field = value } }");
        }
        let fields = modifiers.iter().map(|(key, value)| {
            let made = self.at(key, |this| {
                let known = [SETTING.as_slice(), &ADDING, &OTHERS].concat();
                if !key.starts_with('$') {
                    this.report(
                        "this would replace the whole document",
                        "write { \"$set\" = { … } }, or a pipeline with \"$replaceWith\"",
                    );
                    return Template::Fixed(Bson::Null);
                } else if !known.contains(&key.as_str()) {
                    this.unknown("modifier", key, &known);
                }
                let Bson::Document(fields) = value else {
                    if matches!(value, Bson::String(text) if text.starts_with(':')) {
                        return this.value(value, Fill::Never);
                    }
                    this.report("this is not a table of fields", "write { field = value }");
                    return Template::Fixed(Bson::Null);
                };
                let fields = fields.iter().map(|(field, value)| {
                    (this.name(field), this.at(field, |this| this.modified(key, value)))
                });
                joined_document(fields.collect())
            });
            (key.clone(), made)
        });
        joined_document(fields.collect())
    }

    /// What a modifier does to a field.
    fn modified(&mut self, modifier: &str, value: &Bson) -> Template {
        match (modifier, value) {
            ("$currentDate" | "$rename", _) => self.value(value, Fill::Never),
            ("$pull", Bson::Document(document))
                if !is_operators(document) && typed::of(document).is_none() =>
            {
                self.filter(document)
            }
            ("$pull", _) => self.selecting(|this| this.condition(value)),
            (modifier, Bson::String(_)) if ADDING.contains(&modifier) => {
                self.value(value, Fill::As(How::Element))
            }
            _ => self.data(value),
        }
    }

    fn value(&mut self, value: &Bson, fill: Fill) -> Template {
        match value {
            Bson::String(text) => match self.text(text, fill) {
                Some(Text::Place(place)) => match fill {
                    Fill::As(how) => Template::Fill { place, how, kind: None, selects: self.selects },
                    Fill::Never => Template::Fixed(Bson::Null),
                },
                Some(Text::Plain(text)) => Template::Fixed(Bson::String(text)),
                None => Template::Fixed(Bson::Null),
            },
            Bson::Array(items) => {
                let items = items
                    .iter()
                    .enumerate()
                    .map(|(nth, item)| self.at(&nth.to_string(), |this| this.value(item, fill)));
                joined_array(items.collect())
            }
            Bson::Document(document) => match typed::of(document) {
                Some((kind, inner)) => self.typed(kind, inner, fill),
                None => {
                    let fields = document.iter().map(|(key, value)| {
                        // What the author says is literal needs no other one.
                        let literal = key == "$literal" && fill == Fill::As(How::Literal);
                        let fill = if literal { Fill::As(How::Plain) } else { fill };
                        let made = self.at(key, |this| this.value(value, fill));
                        (self.at(key, |this| this.name(key)), made)
                    });
                    joined_document(fields.collect())
                }
            },
            other => Template::Fixed(other.clone()),
        }
    }

    fn typed(&mut self, kind: typed::Type, inner: &Bson, fill: Fill) -> Template {
        if let Bson::String(text) = inner
            && text.starts_with(':')
        {
            return match (self.text(text, fill), fill) {
                (Some(Text::Place(place)), Fill::As(how)) => {
                    Template::Fill { place, how, kind: Some(kind), selects: self.selects }
                }
                _ => Template::Fixed(Bson::Null),
            };
        }
        match kind.convert(inner) {
            Ok(value) => Template::Fixed(value),
            Err(why) => {
                self.report(why, "correct the value");
                Template::Fixed(Bson::Null)
            }
        }
    }

    fn text(&mut self, text: &str, fill: Fill) -> Option<Text> {
        match place::read(text, self.scope) {
            Ok(Text::Place(_)) if fill == Fill::Never => {
                self.report(
                    "nothing is filled in here: it would be a part of the operation, and not a value",
                    "fill in values of fields, or write it out",
                );
                None
            }
            Ok(text) => Some(text),
            Err((message, fix)) => {
                self.report(message, fix);
                None
            }
        }
    }

    /// The name of a field.
    fn name(&mut self, key: &str) -> String {
        match key.strip_prefix(':').filter(|_| self.scope != Scope::Nothing) {
            Some(rest) if rest.starts_with(':') => rest.to_owned(),
            Some(_) => {
                self.report(
                    "the name of a field is never filled in",
                    "write the name; one that begins with a colon is written with two",
                );
                key.to_owned()
            }
            None => key.to_owned(),
        }
    }

    fn unknown(&mut self, what: &str, name: &str, known: &[&str]) {
        let fix = match suggest::nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? There are {}", known.join(", ")),
            None => format!("use one of {}", known.join(", ")),
        };
        self.report(format!("there is no {what} `{name}` here"), fix);
    }
}

/// Whether a document is made of operators rather than of fields.
fn is_operators(document: &Document) -> bool {
    document.keys().next().is_some_and(|key| key.starts_with('$')) && typed::of(document).is_none()
}

fn joined_array(items: Vec<Template>) -> Template {
    if !items.iter().all(Template::is_fixed) {
        return Template::Array(items);
    }
    Template::Fixed(Bson::Array(items.into_iter().filter_map(fixed).collect()))
}

fn joined_document(fields: Vec<(String, Template)>) -> Template {
    if !fields.iter().all(|(_, value)| value.is_fixed()) {
        return Template::Document(fields);
    }
    let fields = fields.into_iter().filter_map(|(key, value)| Some((key, fixed(value)?)));
    Template::Fixed(Bson::Document(fields.collect()))
}

fn fixed(template: Template) -> Option<Bson> {
    match template {
        Template::Fixed(value) => Some(value),
        _ => None,
    }
}
