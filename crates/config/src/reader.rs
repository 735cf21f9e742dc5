//! Reads TOML values and collects every problem instead of stopping at the first.
//!
//! A getter that returns `None` has either found nothing or already reported why; the caller just goes on.

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;

use oncebox_core::telemetry::Ratio;
use oncebox_sql::suggest::nearest;
use toml_span::value::{Key, Table, ValueInner};
use toml_span::{ErrorKind, Value};

use super::expand::{ExpandError, Fit, as_it_is, expand};
use super::problem::{Problem, Problems};
use super::surroundings::Surroundings;
use super::url_text;

/// The file being read: its text for line numbers, its surroundings, and what went wrong so far.
pub(super) struct Context<'a> {
    source: &'a str,
    surroundings: &'a Surroundings<'a>,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Context<'a> {
    pub(super) fn new(source: &'a str, surroundings: &'a Surroundings<'a>) -> Self {
        Self { source, surroundings, problems: RefCell::default() }
    }

    pub(super) fn into_problems(self) -> Problems {
        Problems::new(self.problems.into_inner())
    }

    /// The line of a byte of the file.
    fn line(&self, at: usize) -> usize {
        1 + self.source.bytes().take(at).filter(|b| *b == b'\n').count()
    }

    /// Reports a problem at a byte of the file.
    pub(super) fn report(&self, key: &str, at: usize, message: impl Into<String>, fix: impl Into<String>) {
        let line = self.line(at);
        let problem = Problem { key: key.to_owned(), line, message: message.into(), fix: fix.into() };
        self.problems.borrow_mut().push(problem);
    }

    pub(super) fn report_syntax(&self, error: &toml_span::Error) {
        let fix = match &error.kind {
            ErrorKind::DuplicateKey { .. } => "keep one of them",
            ErrorKind::DuplicateTable { .. } => "put all its keys under one heading",
            ErrorKind::UnquotedString => "put the value in double quotes",
            ErrorKind::UnterminatedString | ErrorKind::InvalidCharInString(_) => {
                "close the string on its line"
            }
            _ => "correct the TOML here; https://toml.io shows the format",
        };
        self.report("", error.span.start, format!("this is not valid TOML: {error}"), fix);
    }
}

/// A table whose keys are taken one by one; what is left at the end is unknown.
pub(super) struct Section<'c, 'a> {
    cx: &'c Context<'a>,
    path: String,
    at: usize,
    table: Table<'a>,
    known: Vec<&'static str>,
}

impl<'c, 'a> Section<'c, 'a> {
    pub(super) fn root(cx: &'c Context<'a>, value: Value<'a>) -> Option<Self> {
        Entry { cx, path: String::new(), value }.into_section()
    }

    pub(super) fn optional(&mut self, key: &'static str) -> Option<Entry<'c, 'a>> {
        self.known.push(key);
        let value = self.table.remove(key)?;
        Some(Entry { cx: self.cx, path: self.path_of(key), value })
    }

    /// As [`Section::optional`], but its absence is a problem. `message` and `fix` say why it is needed.
    pub(super) fn required(&mut self, key: &'static str, message: &str, fix: &str) -> Option<Entry<'c, 'a>> {
        let entry = self.optional(key);
        if entry.is_none() {
            self.report_key(key, message, fix);
        }
        entry
    }

    /// Reports a problem with a key that is not written there.
    pub(super) fn report_key(&self, key: &str, message: &str, fix: &str) {
        self.cx.report(&self.path_of(key), self.at, message, fix);
    }

    /// What `read` makes of the key, or `default` if it is absent or wrong.
    pub(super) fn or<T>(
        &mut self,
        key: &'static str,
        default: T,
        read: impl FnOnce(Entry<'c, 'a>) -> Option<T>,
    ) -> T {
        self.optional(key).and_then(read).unwrap_or(default)
    }

    /// Takes all that is left, for a table with free keys.
    pub(super) fn into_entries(self) -> Vec<(String, Entry<'c, 'a>)> {
        let Self { cx, path, table, .. } = self;
        table
            .into_iter()
            .map(|(key, value)| {
                (key.name.to_string(), Entry { cx, path: format!("{path}.\"{key}\""), value })
            })
            .collect()
    }

    /// Whether the key is there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Says that these keys are known, whether they are there or not.
    pub(super) fn know(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    /// Takes the tables with free names: all but those of these names.
    pub(super) fn take_tables(&mut self, but: &[&str]) -> Vec<(String, Entry<'c, 'a>)> {
        let is_free =
            |(key, value): &(&Key<'a>, &Value<'a>)| value.as_table().is_some() && !but.contains(&&*key.name);
        let names: Vec<String> =
            in_order(&self.table).into_iter().filter(is_free).map(|(key, _)| key.name.to_string()).collect();
        let take = |name: String| {
            let value = self.table.remove(name.as_str())?;
            let path = step(&self.path, &name);
            Some((name, Entry { cx: self.cx, path, value }))
        };
        names.into_iter().filter_map(take).collect()
    }

    /// Where it stands, for a problem that is seen only later.
    pub(super) fn place(&self) -> Place<'c, 'a> {
        Place { cx: self.cx, path: self.path.clone(), at: self.at }
    }

    /// Reports a problem with the table as a whole.
    pub(super) fn report(&self, message: impl Into<String>, fix: impl Into<String>) {
        self.cx.report(&self.path, self.at, message, fix);
    }

    /// Reports the keys nobody asked for.
    pub(super) fn finish(self) {
        for key in self.table.keys() {
            let fix = match nearest(&key.name, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? Known here: {}", self.known.join(", ")),
                None => format!("remove it; known here: {}", self.known.join(", ")),
            };
            self.cx.report(&self.path_of(&key.name), key.span.start, "this key is not known", fix);
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// Where a value stands.
pub(super) struct Place<'c, 'a> {
    cx: &'c Context<'a>,
    path: String,
    at: usize,
}

impl<'a> Place<'_, 'a> {
    pub(super) fn report(&self, message: impl Into<String>, fix: impl Into<String>) {
        self.cx.report(&self.path, self.at, message, fix);
    }

    /// Reports a problem with a key below, which may not be there.
    pub(super) fn report_below(&self, key: &str, message: impl Into<String>, fix: impl Into<String>) {
        self.cx.report(&format!("{}.{key}", self.path), self.at, message, fix);
    }

    pub(super) fn surroundings(&self) -> &'a Surroundings<'a> {
        self.cx.surroundings
    }
}

impl fmt::Display for Place<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in line {}", self.path, self.cx.line(self.at))
    }
}

/// A value with its place.
pub(super) struct Entry<'c, 'a> {
    cx: &'c Context<'a>,
    path: String,
    value: Value<'a>,
}

impl<'c, 'a> Entry<'c, 'a> {
    /// Where it stands, for a problem that is seen only later.
    pub(super) fn place(&self) -> Place<'c, 'a> {
        Place { cx: self.cx, path: self.path.clone(), at: self.at() }
    }

    /// Where a key of this table stands, if it is there.
    pub(super) fn place_of(&self, key: &str) -> Option<Place<'c, 'a>> {
        let value = self.value.as_table()?.get(key)?;
        Some(Place { cx: self.cx, path: step(&self.path, key), at: value.span.start })
    }

    pub(super) fn surroundings(&self) -> &'a Surroundings<'a> {
        self.cx.surroundings
    }

    fn at(&self) -> usize {
        self.value.span.start
    }

    pub(super) fn report(&self, message: impl Into<String>, fix: impl Into<String>) {
        self.cx.report(&self.path, self.at(), message, fix);
    }

    /// Reports a problem at a byte of the text of this string, on the exact line if the text stands there verbatim.
    pub(super) fn report_within(
        &self,
        text: &str,
        offset: usize,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let span = self.value.span;
        let verbatim = self.cx.source.get(span.start..span.end) == Some(text);
        let at = if verbatim { span.start + offset } else { span.start };
        self.cx.report(&self.path, at, message, fix);
    }

    fn report_type<T>(&self, expected: &str) -> Option<T> {
        let found = match self.value.as_ref() {
            ValueInner::String(_) => "a string",
            ValueInner::Integer(_) => "an integer",
            ValueInner::Float(_) => "a float",
            ValueInner::Boolean(_) => "a boolean",
            ValueInner::Array(_) => "an array",
            ValueInner::Table(_) => "a table",
        };
        self.report(format!("this is {found}"), format!("write {expected}"));
        None
    }

    /// A string with its variables replaced.
    pub(super) fn text(&self) -> Option<String> {
        self.text_as("a string")
    }

    /// A URL that is not blank, or several separated by commas, with variables encoded for their place in it.
    pub(super) fn url_text(&self, several: bool) -> Option<String> {
        let written = self.value.as_str().unwrap_or_default();
        let fit = |at: usize, name: &str, value| url_text::fit(written, several, at, name, value);
        self.filled(self.expanded("a string", &fit)?)
    }

    fn text_as(&self, expected: &str) -> Option<String> {
        self.expanded(expected, &as_it_is)
    }

    fn expanded(&self, expected: &str, fit: &Fit<'_>) -> Option<String> {
        let Some(text) = self.value.as_str() else {
            return self.report_type(expected);
        };
        match expand(text, self.cx.surroundings.env, fit) {
            Ok(text) => Some(text.into_owned()),
            Err(ExpandError::Unset(name)) => {
                self.report(format!("the environment variable {name} is not set"), format!("set {name}"));
                None
            }
            Err(ExpandError::NotAHost(name)) => {
                self.report(
                    format!("the variable {name} stands where the host of the URL is, and is not one"),
                    "give the host alone, or the whole URL in one variable",
                );
                None
            }
            Err(ExpandError::Malformed) => {
                self.report(
                    "`${` begins the name of an environment variable, as in ${HOME}",
                    "write $${ for a literal ${",
                );
                None
            }
        }
    }

    /// A string that is not blank.
    pub(super) fn filled_text(&self) -> Option<String> {
        self.filled(self.text()?)
    }

    fn filled(&self, text: String) -> Option<String> {
        if text.trim().is_empty() {
            self.report("this is empty", "give it a value or remove the key");
            return None;
        }
        Some(text)
    }

    /// A string that `parse` understands. The message shows it as written, so what came from the environment stays there.
    pub(super) fn parsed<T>(&self, what: &str, fix: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text_as(what)?;
        let parsed = parse(&text);
        if parsed.is_none() {
            self.report(format!("{} is not {what}", self.as_written()), fix);
        }
        parsed
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, options: &[(&str, T)]) -> Option<T> {
        let words: Vec<_> = options.iter().map(|(word, _)| *word).collect();
        let expected = format!("one of {}", words.join(", "));
        let text = self.text_as(&expected)?;
        let chosen = options.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if chosen.is_none() {
            let fix = match nearest(&text, words) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("write {expected}"),
            };
            self.report(format!("{} is not {expected}", self.as_written()), fix);
        }
        chosen
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        self.value.as_bool().or_else(|| self.report_type("true or false"))
    }

    pub(super) fn integer(&self, range: &RangeInclusive<i64>) -> Option<i64> {
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        let Some(number) = self.value.as_integer() else {
            return self.report_type(&expected);
        };
        if !range.contains(&number) {
            self.report(format!("{number} is out of range"), format!("write {expected}"));
            return None;
        }
        Some(number)
    }

    /// A part of a whole, from 0 to 1.
    pub(super) fn ratio(&self) -> Option<Ratio> {
        const EXPECTED: &str = "a number from 0 to 1";
        let number = match self.value.as_ref() {
            ValueInner::Integer(number) => *number as f64,
            ValueInner::Float(number) => *number,
            _ => return self.report_type(EXPECTED),
        };
        let ratio = Ratio::new(number);
        if ratio.is_none() {
            self.report(format!("{number} is out of range"), format!("write {EXPECTED}"));
        }
        ratio
    }

    pub(super) fn is_integer(&self) -> bool {
        self.value.as_integer().is_some()
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.as_table().is_some()
    }

    pub(super) fn is_array(&self) -> bool {
        self.value.as_array().is_some()
    }

    pub(super) fn is_empty_array(&self) -> bool {
        self.value.as_array().is_some_and(Vec::is_empty)
    }

    /// A string, a whole number or a boolean, as text. The messages never show the value.
    pub(super) fn scalar(&self) -> Option<String> {
        match self.value.as_ref() {
            ValueInner::Integer(number) => Some(number.to_string()),
            ValueInner::Boolean(yes) => Some(yes.to_string()),
            _ => self.text_as("a string, an integer or a boolean"),
        }
    }

    pub(super) fn into_section(mut self) -> Option<Section<'c, 'a>> {
        let at = self.at();
        match self.value.take() {
            ValueInner::Table(table) => {
                Some(Section { cx: self.cx, path: self.path, at, table, known: Vec::new() })
            }
            other => {
                self.value.set(other);
                self.report_type("a table")
            }
        }
    }

    /// The elements of an array; `expected` says of what.
    pub(super) fn into_items(mut self, expected: &str) -> Option<Vec<Self>> {
        match self.value.take() {
            ValueInner::Array(items) => {
                let entry = |(nth, value)| Self { cx: self.cx, path: format!("{}[{nth}]", self.path), value };
                Some(items.into_iter().enumerate().map(entry).collect())
            }
            other => {
                self.value.set(other);
                self.report_type(expected)
            }
        }
    }

    /// Whether it is a table with one of these keys.
    pub(super) fn has_any(&self, keys: &[&str]) -> bool {
        self.value.as_table().is_some_and(|table| keys.iter().any(|key| table.contains_key(*key)))
    }

    /// The whole value as JSON, the keys in the order of the file.
    pub(super) fn json(&self) -> Option<String> {
        let mut out = String::new();
        self.write_json(&self.value, &self.path, &mut out).then_some(out)
    }

    fn write_json(&self, value: &Value<'a>, path: &str, out: &mut String) -> bool {
        let here = |value: &Value<'a>| Self { cx: self.cx, path: path.to_owned(), value: copy(value) };
        match value.as_ref() {
            ValueInner::String(_) => match here(value).text() {
                Some(text) => out.push_str(&serde_json::Value::String(text).to_string()),
                None => return false,
            },
            ValueInner::Integer(number) => out.push_str(&number.to_string()),
            ValueInner::Float(number) => match serde_json::Number::from_f64(*number) {
                Some(number) => out.push_str(&number.to_string()),
                None => {
                    here(value).report("this is not a number of JSON", "write a number that is finite");
                    return false;
                }
            },
            ValueInner::Boolean(yes) => out.push_str(if *yes { "true" } else { "false" }),
            ValueInner::Array(items) => {
                let mut good = true;
                out.push('[');
                for (nth, item) in items.iter().enumerate() {
                    if nth > 0 {
                        out.push(',');
                    }
                    good &= self.write_json(item, &format!("{path}[{nth}]"), out);
                }
                out.push(']');
                return good;
            }
            ValueInner::Table(table) => {
                let mut good = true;
                out.push('{');
                for (nth, (key, value)) in in_order(table).into_iter().enumerate() {
                    if nth > 0 {
                        out.push(',');
                    }
                    out.push_str(&serde_json::Value::String(key.name.to_string()).to_string());
                    out.push(':');
                    good &= self.write_json(value, &step(path, &key.name), out);
                }
                out.push('}');
                return good;
            }
        }
        true
    }

    /// Reports a problem at a place inside of this value: keys, and numbers of items counted from 0.
    pub(super) fn report_inside(
        &self,
        inside: &[String],
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let (mut value, mut at, mut path) = (&self.value, self.at(), self.path.clone());
        for name in inside {
            let next = match value.as_ref() {
                ValueInner::Table(table) => table.get_key_value(name.as_str()).map(|(key, value)| {
                    path = step(&path, name);
                    (value, key.span.start)
                }),
                ValueInner::Array(items) => {
                    name.parse().ok().and_then(|nth: usize| items.get(nth)).map(|value| {
                        path = format!("{path}[{name}]");
                        (value, value.span.start)
                    })
                }
                _ => None,
            };
            let Some((found, place)) = next else {
                // It is missing there.
                path = step(&path, name);
                break;
            };
            (value, at) = (found, place);
        }
        self.cx.report(&path, at, message, fix);
    }

    fn as_written(&self) -> String {
        format!("\"{}\"", self.value.as_str().unwrap_or_default())
    }
}

/// The keys of a table as they stand in the file. To a database their order may matter.
fn in_order<'t, 'a>(table: &'t Table<'a>) -> Vec<(&'t Key<'a>, &'t Value<'a>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span.start);
    entries
}

/// The path of a key below another.
fn step(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if plain { format!("{path}.{key}") } else { format!("{path}.\"{key}\"") }
}

/// A string with its place.
fn copy<'a>(value: &Value<'a>) -> Value<'a> {
    let text = value.as_str().unwrap_or_default().to_owned();
    Value::with_span(ValueInner::String(text.into()), value.span)
}
