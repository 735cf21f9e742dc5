//! `:name` and `:name.path`: what of a message, or of a row, is filled in.

use mongodb::bson::{Bson, Document};
use oncebox_sql::{Param, PayloadKind, suggest};

/// What may be filled in where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// What belongs to one message.
    Message(PayloadKind),
    /// What belongs to a row.
    Row,
    /// Nothing: a pipeline reads the fields of its documents.
    Nothing,
}

/// The name of a row.
pub(super) const ROW: &str = "row";

/// A text of the configuration, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    /// As it is.
    Plain(String),
    /// Filled in.
    Place(Place),
}

/// A value of a message, or of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The first is the field of the message, unless this is about a row.
    path: Vec<String>,
}

impl Place {
    /// The field of the message that is used. `None`: all of them.
    pub(super) fn field(&self) -> Option<&str> {
        self.path.first().map(String::as_str)
    }

    /// Whether it is this field as a whole.
    pub(super) fn is(&self, param: Param) -> bool {
        matches!(self.path.as_slice(), [only] if only == param.name())
    }

    /// What is there.
    pub(super) fn find(&self, row: &Document) -> Option<Bson> {
        let Some((first, rest)) = self.path.split_first() else { return Some(Bson::Document(row.clone())) };
        let mut found = row.get(first);
        for step in rest {
            found = match found {
                Some(Bson::Document(document)) => document.get(step),
                Some(Bson::Array(items)) => step.parse::<usize>().ok().and_then(|nth| items.get(nth)),
                _ => None,
            };
        }
        found.cloned()
    }

    /// The same for a filter, which needs a value. A message without a key has null for it, and so has a row that comes of
    /// grouping by a field that is missing; a null within a payload was sent.
    pub(super) fn find_there(&self, row: &Document) -> Result<Bson, String> {
        let is_there = |found: &Bson| *found != Bson::Null || self.path.len() > 1;
        self.find(row).filter(is_there).ok_or_else(|| {
            format!(
                "a filter needs `{}`, and there is none; with null in its place the documents without the field would match",
                self.path.join(".")
            )
        })
    }
}

const TWO_COLONS: &str = "a text that begins with a colon is written with two";

/// Reads a text of the configuration. The error says what is wrong, and what to do.
pub(super) fn read(text: &str, scope: Scope) -> Result<Text, (String, String)> {
    let Some(reference) = text.strip_prefix(':') else { return Ok(Text::Plain(text.to_owned())) };
    if reference.starts_with(':') && scope != Scope::Nothing {
        return Ok(Text::Plain(reference.to_owned()));
    }
    let mut path: Vec<String> = reference.split('.').map(str::to_owned).collect();
    let name = path[0].as_str();
    let param = Param::from_name(name);
    match (scope, param) {
        (Scope::Nothing, _) => return into_nothing(text, reference),
        (Scope::Row, Some(_)) => {
            return Err((
                format!("`:{name}` belongs to one message, but `batch` works on rows"),
                format!("write `:row.{reference}`"),
            ));
        }
        (Scope::Message(_), None) if name == ROW => {
            return Err((
                "there are rows in `batch` only".to_owned(),
                "write a value of the message, such as `:payload.sku`".to_owned(),
            ));
        }
        (Scope::Row, None) if name == ROW => {
            path.remove(0);
        }
        (Scope::Message(payload), Some(param)) => {
            if path.len() > 1 && !has_fields(param, payload) {
                return Err((
                    format!("`{param}` has no fields here"),
                    format!("write `{param}`; fields are in `:headers`, and in `:payload` if it is JSON"),
                ));
            }
        }
        (_, None) => return Err(unknown(name, scope)),
    }
    if path.iter().any(String::is_empty) {
        return Err((format!("`{text}` has an empty step"), "write names between the dots".to_owned()));
    }
    Ok(Text::Place(Place { path }))
}

/// A text of a pipeline is what it is. One that looks like a parameter was meant as one.
fn into_nothing(text: &str, reference: &str) -> Result<Text, (String, String)> {
    let name = reference.split('.').next().unwrap_or_default();
    if name != ROW && Param::from_name(name).is_none() {
        return Ok(Text::Plain(text.to_owned()));
    }
    let fix = "it reads the fields of its documents, as in `$payload.sku`; or write the value";
    Err(("nothing is filled into a pipeline".to_owned(), fix.to_owned()))
}

fn has_fields(param: Param, payload: PayloadKind) -> bool {
    param == Param::Headers || (param == Param::Payload && payload == PayloadKind::Json)
}

fn unknown(name: &str, scope: Scope) -> (String, String) {
    let names: Vec<&str> =
        if scope == Scope::Row { vec![ROW] } else { Param::ALL.iter().map(|param| param.name()).collect() };
    let all = names.iter().map(|name| format!(":{name}")).collect::<Vec<_>>().join(" ");
    let fix = match suggest::nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `:{near}`? There are {all}; {TWO_COLONS}"),
        None => format!("use one of {all}; {TWO_COLONS}"),
    };
    (format!("there is no parameter `:{name}`"), fix)
}
