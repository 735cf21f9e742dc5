//! Reads a few JSON pointers out of a payload in one pass, without building the document.
//!
//! Only the values on the way to a pointer are looked at; the rest is skipped. That costs a fraction of parsing into a
//! `serde_json::Value`, and it runs once per message.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What a pointer leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leaf {
    /// A string, or the text of an integer.
    Text(String),
    /// Something that cannot be an id, in words.
    Other(&'static str),
}

/// Whether `pointer` can be followed. The empty pointer (the whole document) is refused: a document is no id.
pub(super) fn check(pointer: &str) -> Result<(), &'static str> {
    if !pointer.starts_with('/') {
        return Err("a JSON pointer begins with `/`");
    }
    let mut chars = pointer.chars();
    while let Some(c) = chars.next() {
        if c == '~' && !matches!(chars.next(), Some('0' | '1')) {
            return Err("in a JSON pointer `~` is written `~0` (and `/` in a name `~1`)");
        }
    }
    Ok(())
}

/// Follows all `pointers` that are there through `json`. Where an object repeats a name the last one counts, as in PostgreSQL's `jsonb`.
pub(super) fn read<const N: usize>(
    json: &[u8],
    pointers: [Option<&str>; N],
) -> Result<[Option<Leaf>; N], serde_json::Error> {
    let mut found = std::array::from_fn(|_| None);
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Walk { wanted: pointers, found: &mut found }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(found)
}

/// What is left of each pointer at this value: `Some("")` has arrived, `None` went another way.
type Wanted<'p, const N: usize> = [Option<&'p str>; N];

struct Walk<'p, 'f, const N: usize> {
    wanted: Wanted<'p, N>,
    found: &'f mut [Option<Leaf>; N],
}

impl<const N: usize> Walk<'_, '_, N> {
    fn arrive(&mut self, leaf: impl Fn() -> Leaf) {
        for (wanted, found) in self.wanted.iter().zip(self.found.iter_mut()) {
            if *wanted == Some("") {
                *found = Some(leaf());
            }
        }
    }

    /// A repeated name replaces whatever its earlier value led to, even by nothing.
    fn forget(&mut self, wanted: &Wanted<'_, N>) {
        for (wanted, found) in wanted.iter().zip(self.found.iter_mut()) {
            if wanted.is_some() {
                *found = None;
            }
        }
    }
}

impl<'de, const N: usize> DeserializeSeed<'de> for Walk<'_, '_, N> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Walk<'_, '_, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        self.arrive(|| Leaf::Text(text.to_owned()));
        Ok(())
    }

    fn visit_u64<E>(mut self, number: u64) -> Result<(), E> {
        self.arrive(|| Leaf::Text(number.to_string()));
        Ok(())
    }

    fn visit_i64<E>(mut self, number: i64) -> Result<(), E> {
        self.arrive(|| Leaf::Text(number.to_string()));
        Ok(())
    }

    // One value has many float texts (1, 1.0, 1e0), and large integers arrive here rounded: neither can be an id.
    fn visit_f64<E>(mut self, _: f64) -> Result<(), E> {
        self.arrive(|| Leaf::Other("a number, but no 64-bit integer"));
        Ok(())
    }

    fn visit_bool<E>(mut self, _: bool) -> Result<(), E> {
        self.arrive(|| Leaf::Other("a boolean"));
        Ok(())
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.arrive(|| Leaf::Other("null"));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.arrive(|| Leaf::Other("an object"));
        while let Some(below) = map.next_key_seed(Name { wanted: &self.wanted })? {
            if below.iter().any(Option::is_some) {
                self.forget(&below);
                map.next_value_seed(Walk { wanted: below, found: &mut *self.found })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.arrive(|| Leaf::Other("an array"));
        for index in 0_usize.. {
            let below = self.wanted.map(|rest| rest.and_then(|rest| into_element(rest, index)));
            let more = if below.iter().any(Option::is_some) {
                seq.next_element_seed(Walk { wanted: below, found: &mut *self.found })?.is_some()
            } else {
                seq.next_element::<IgnoredAny>()?.is_some()
            };
            if !more {
                break;
            }
        }
        Ok(())
    }
}

/// Reads a name of an object and answers which pointers go through it, without keeping the name.
struct Name<'w, 'p, const N: usize> {
    wanted: &'w Wanted<'p, N>,
}

impl<'de, 'p, const N: usize> DeserializeSeed<'de> for Name<'_, 'p, N> {
    type Value = Wanted<'p, N>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'p, const N: usize> Visitor<'_> for Name<'_, 'p, N> {
    type Value = Wanted<'p, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.wanted.map(|rest| rest.and_then(|rest| into_member(rest, name))))
    }
}

/// Splits `/a/b` into `a` and `/b`.
fn first_token(rest: &str) -> Option<(&str, &str)> {
    let tail = rest.strip_prefix('/')?;
    Some(tail.split_at(tail.find('/').unwrap_or(tail.len())))
}

fn into_member<'p>(rest: &'p str, name: &str) -> Option<&'p str> {
    let (token, below) = first_token(rest)?;
    let same =
        if token.contains('~') { token.replace("~1", "/").replace("~0", "~") == name } else { token == name };
    same.then_some(below)
}

fn into_element(rest: &str, index: usize) -> Option<&str> {
    let (token, below) = first_token(rest)?;
    let canonical = token == "0" || token.starts_with(|c: char| ('1'..='9').contains(&c));
    (canonical && token.parse() == Ok(index)).then_some(below)
}
