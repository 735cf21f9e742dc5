//! What a request says: the pairs of a query or a form, or the members of a JSON object.

use std::collections::BTreeMap;

use serde_json::Value;

/// The most rows that one request may name.
const MAX_NUMBERS: usize = 1_000;

/// Names with their values. What is empty counts as absent, as forms send it, except for who wants it [`whole`](Fields::whole).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(BTreeMap<String, Vec<String>>);

impl FromIterator<(String, String)> for Fields {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        let mut fields = Self::default();
        for (name, value) in pairs {
            fields.add(name, value);
        }
        fields
    }
}

impl Fields {
    /// Of a query or a form.
    pub(crate) fn of_form(text: &[u8]) -> Self {
        form_urlencoded::parse(text).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }

    /// Of a JSON object.
    pub(crate) fn of_json(text: &[u8]) -> Result<Self, String> {
        let Value::Object(members) =
            serde_json::from_slice(text).map_err(|e| format!("this is no JSON: {e}"))?
        else {
            return Err("write a JSON object".to_owned());
        };
        let mut fields = Self::default();
        for (name, value) in members {
            let values = if let Value::Array(values) = value {
                fields.0.entry(name.clone()).or_default();
                values
            } else {
                vec![value]
            };
            for value in values {
                match value {
                    Value::Null => {}
                    Value::String(text) => fields.add(name.clone(), text),
                    Value::Bool(_) | Value::Number(_) => fields.add(name.clone(), value.to_string()),
                    Value::Array(_) | Value::Object(_) => {
                        return Err(format!("`{name}` is neither a text nor a number"));
                    }
                }
            }
        }
        Ok(fields)
    }

    fn add(&mut self, name: String, value: String) {
        self.0.entry(name).or_default().push(value);
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.0.get(name).into_iter().flatten();
        values.map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// Fails if there is something else.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.pairs().map(|(name, _)| name).find(|name| !known.contains(name)) {
            Some(name) => Err(format!("`{name}` is not known here; known are {}", known.join(", "))),
            None => Ok(()),
        }
    }

    pub(crate) fn maybe(&self, name: &str) -> Option<String> {
        self.of(name).next().map(|value| value.trim().to_owned())
    }

    /// As it was sent, blanks and all; empty is something.
    pub(crate) fn whole(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.first().map(String::as_str)
    }

    /// The lines of a text, or of several; `None` if nobody has sent any, and none if what was sent is empty.
    pub(crate) fn lines(&self, name: &str) -> Option<Vec<&str>> {
        self.0.get(name)?;
        Some(self.of(name).flat_map(str::lines).filter(|line| !line.trim().is_empty()).collect())
    }

    pub(crate) fn text(&self, name: &str) -> Result<String, String> {
        self.maybe(name).ok_or_else(|| format!("`{name}` is missing"))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let number =
            |text: String| text.parse().map_err(|_| format!("`{name}` is not a number that will do"));
        self.maybe(name).map(number).transpose()
    }

    /// `true`, `on` and `1` are yes.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.maybe(name).as_deref() {
            None | Some("false" | "off" | "0") => Ok(false),
            Some("true" | "on" | "1") => Ok(true),
            Some(_) => Err(format!("`{name}` is true or false")),
        }
    }

    /// At least one number: repeated, or separated by commas.
    pub(crate) fn numbers(&self, name: &str) -> Result<Vec<i64>, String> {
        let parts =
            self.of(name).flat_map(|value| value.split(',')).map(str::trim).filter(|part| !part.is_empty());
        let numbers: Result<Vec<i64>, _> = parts.map(str::parse).collect();
        match numbers {
            Ok(numbers) if numbers.is_empty() => Err(format!("`{name}` is missing: say which")),
            Ok(numbers) if numbers.len() > MAX_NUMBERS => {
                Err(format!("`{name}` holds more than {MAX_NUMBERS} numbers: take fewer at a time"))
            }
            Ok(numbers) => Ok(numbers),
            Err(_) => Err(format!("`{name}` holds something that is not a number")),
        }
    }

    /// All of them, for a link that says the same.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.keys().flat_map(|name| self.of(name).map(move |value| (name.as_str(), value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_and_an_object_say_the_same() {
        let form = Fields::of_form(b"numbers=1&numbers=2%2C3&force=on&reason=a+b&empty=");
        let json = Fields::of_json(
            br#"{"numbers": [1, "2,3"], "force": "on", "reason": "a b", "empty": "", "no": null}"#,
        );
        assert_eq!(Ok(&form), json.as_ref());
        assert_eq!(form.numbers("numbers"), Ok(vec![1, 2, 3]));
        assert_eq!(form.flag("force"), Ok(true));
        assert_eq!(form.maybe("reason").as_deref(), Some("a b"));
        assert_eq!(form.maybe("empty"), None);
        assert_eq!(form.only(&["numbers", "force", "reason"]), Ok(()));
    }

    #[test]
    fn who_wants_it_gets_a_text_as_it_was_sent() {
        let form = Fields::of_form(b"payload=+a%0D%0Ab%0A&none=&headers=a%3D1%0D%0A%0D%0Ab%3D2");
        assert_eq!((form.whole("payload"), form.whole("none")), (Some(" a\r\nb\n"), Some("")));
        assert_eq!(form.whole("absent"), None);
        assert_eq!(form.lines("headers"), Some(vec!["a=1", "b=2"]));
        assert_eq!((form.lines("none"), form.lines("absent")), (Some(vec![]), None));
        assert_eq!(Fields::of_json(br#"{"headers": []}"#).unwrap().lines("headers"), Some(vec![]));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in [&b"[1]"[..], b"{", b"\xff", br#"{"a": {"b": 1}}"#] {
            assert!(Fields::of_json(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_request_names_a_bounded_number_of_rows() {
        let many = |count: usize| Fields::of_form(format!("n={}", vec!["1"; count].join(",")).as_bytes());
        assert!(many(MAX_NUMBERS).numbers("n").is_ok());
        assert!(many(MAX_NUMBERS + 1).numbers("n").is_err());
    }
}
