//! What an operator changes of a dead letter.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use oncebox_core::message::Headers;
use oncebox_core::store::LetterContent;

use crate::action::{Field, Kind, optional, required};
use crate::fields::Fields;

pub(crate) const FIELDS: &[Field] = &[
    required("number", Kind::Number, "which one"),
    required("seen", Kind::Number, "how often it was changed when you looked: `edits` of the letter"),
    optional("payload", Kind::Text, "the payload, as text"),
    optional("payload_base64", Kind::Text, "the payload, in Base64"),
    optional("tombstone", Kind::Flag, "no payload"),
    optional("key", Kind::Text, "the key, as text"),
    optional("headers", Kind::Texts, "NAME=VALUE: all headers that can be written so; the others stay"),
    optional("replay", Kind::Flag, "and replay it"),
];

/// What of a dead letter is changed; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    /// Its number.
    pub number: i64,
    /// How often it was changed when somebody looked at it.
    pub seen: u32,
    /// The payload; `Some(None)` is a tombstone.
    pub payload: Option<Option<Bytes>>,
    /// The key.
    pub key: Option<Bytes>,
    /// The headers that are a line of text each.
    pub headers: Option<Vec<(String, String)>>,
    /// Whether it is replayed then.
    pub replay: bool,
}

impl Edit {
    pub(crate) fn read(fields: &Fields) -> Result<Self, String> {
        let number = fields.number("number")?.ok_or("`number` is missing")?;
        let seen = fields.number("seen")?.ok_or("`seen` is missing: how often was it changed before?")?;
        let headers =
            fields.lines("headers").map(|lines| lines.into_iter().map(pair).collect()).transpose()?;
        Ok(Self {
            number,
            seen,
            payload: payload(fields)?,
            key: fields.whole("key").map(|key| Bytes::from(key.to_owned())),
            headers,
            replay: fields.flag("replay")?,
        })
    }

    /// What it is then.
    #[must_use]
    pub fn applied(&self, was: &LetterContent) -> LetterContent {
        let mut content = was.clone();
        if let Some(payload) = &self.payload {
            content.payload.clone_from(payload);
        }
        // A form sends a key that is empty where there is none.
        if let Some(key) = self.key.as_ref().filter(|key| was.key.is_some() || !key.is_empty()) {
            content.key = Some(key.clone());
        }
        if let Some(headers) = self.headers.as_ref().filter(|headers| **headers != as_pairs(&was.headers)) {
            content.headers = with(headers, &was.headers);
        }
        content
    }
}

/// Browsers end lines with CR and LF, whatever the text had. A form that must not lose one sends Base64.
fn payload(fields: &Fields) -> Result<Option<Option<Bytes>>, String> {
    if fields.flag("tombstone")? {
        return Ok(Some(None));
    }
    match (fields.whole("payload"), fields.whole("payload_base64")) {
        (Some(_), Some(_)) => Err("`payload` and `payload_base64` are two payloads: say one".to_owned()),
        (Some(text), None) => Ok(Some(Some(Bytes::from(text.replace("\r\n", "\n"))))),
        (None, Some(text)) => {
            let packed: String = text.split_whitespace().collect();
            let bytes = STANDARD.decode(packed).map_err(|e| format!("`payload_base64` is no Base64: {e}"))?;
            Ok(Some(Some(Bytes::from(bytes))))
        }
        (None, None) => Ok(None),
    }
}

fn pair(line: &str) -> Result<(String, String), String> {
    match line.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("`headers` holds a line that is not NAME=VALUE".to_owned()),
    }
}

/// Whether a text survives a form: it has no characters that browsers change, or that nobody sees.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
}

/// A header that is one line of text.
fn as_pair(name: &str, value: Option<&[u8]>) -> Option<(String, String)> {
    let text = std::str::from_utf8(value?).ok()?;
    let is_line = is_plain(text) && !text.contains('\n') && is_plain(name) && name == name.trim();
    (is_line && !name.is_empty() && !name.contains(['=', '\n'])).then(|| (name.to_owned(), text.to_owned()))
}

/// The headers that are a line of text each.
pub(crate) fn as_pairs(headers: &Headers) -> Vec<(String, String)> {
    headers.iter().filter_map(|(name, value)| as_pair(name, value)).collect()
}

/// How many others there are.
pub(crate) fn others(headers: &Headers) -> usize {
    headers.iter().filter(|(name, value)| as_pair(name, *value).is_none()).count()
}

fn with(pairs: &[(String, String)], were: &Headers) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in pairs {
        headers.push(name.clone(), Some(Bytes::from(value.clone())));
    }
    for (name, value) in were.iter().filter(|(name, value)| as_pair(name, *value).is_none()) {
        headers.push(name, value.map(Bytes::copy_from_slice));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn was() -> LetterContent {
        let headers =
            [("a", Some(Bytes::from("1"))), ("raw", Some(Bytes::from_static(&[0xff]))), ("b", None)];
        LetterContent {
            key: None,
            payload: Some(Bytes::from("{\n}")),
            headers: headers.into_iter().collect(),
        }
    }

    fn read(form: &str) -> Result<Edit, String> {
        Edit::read(&Fields::of_form(form.as_bytes()))
    }

    #[test]
    fn what_a_form_sends_back_unchanged_changes_nothing() {
        let edit = read("number=1&seen=0&payload=%7B%0D%0A%7D&key=&headers=a%3D1%0D%0A").unwrap();
        assert_eq!(edit.applied(&was()), was());
        assert_eq!(read("number=1&seen=2").unwrap(), Edit { number: 1, seen: 2, ..Edit::default() });
    }

    #[test]
    fn payload_key_and_headers_are_changed_and_what_is_no_text_stays() {
        let edit =
            read("number=1&seen=0&payload_base64=AP8%3D&key=+k&headers=c%3Dx%3Dy&replay=true").unwrap();
        let is = edit.applied(&was());
        assert_eq!(is.payload.as_deref(), Some(&[0, 0xff][..]));
        assert_eq!(is.key.as_deref(), Some(&b" k"[..]), "as it was written");
        let headers: Vec<_> = is.headers.iter().collect();
        assert_eq!(headers, [("c", Some(&b"x=y"[..])), ("raw", Some(&[0xff][..])), ("b", None)]);
        assert!(edit.replay);
        let none = read("number=1&seen=0&tombstone=on&payload=x&headers=").unwrap().applied(&was());
        assert_eq!((none.payload, none.headers.iter().count()), (None, 2));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (form, words) in [
            ("seen=0", "number"),
            ("number=1", "seen"),
            ("number=1&seen=0&payload=a&payload_base64=YQ", "two payloads"),
            ("number=1&seen=0&payload_base64=%21", "no Base64"),
            ("number=1&seen=0&headers=novalue", "NAME=VALUE"),
        ] {
            let problem = read(form).unwrap_err();
            assert!(problem.contains(words), "{form}: {problem}");
        }
    }
}
