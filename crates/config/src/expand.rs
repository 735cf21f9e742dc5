//! `${VAR}` in a value.

use std::borrow::Cow;

/// Why a value cannot be expanded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExpandError {
    /// The environment has no such variable.
    Unset(String),
    /// `${` that is not followed by a name and `}`.
    Malformed,
    /// The variable stands for the host of a URL, and holds what ends a host.
    NotAHost(String),
}

/// What becomes of the value of a variable, given where in the text its `${` is, and its name.
pub(super) type Fit<'f> = dyn Fn(usize, &str, String) -> Result<String, ExpandError> + 'f;

/// The value as it is.
pub(super) fn as_it_is(_at: usize, _name: &str, value: String) -> Result<String, ExpandError> {
    Ok(value)
}

/// Replaces `${NAME}` by what `env` gives for it, made fit for its place; `$${` stands for a literal `${`. What comes out is not
/// expanded again.
pub(super) fn expand<'t>(
    text: &'t str,
    env: &dyn Fn(&str) -> Option<String>,
    fit: &Fit<'_>,
) -> Result<Cow<'t, str>, ExpandError> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from_dollar) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = &from_dollar[2..];
            continue;
        }
        expanded.push_str(before);
        let (name, after) = from_dollar[2..].split_once('}').ok_or(ExpandError::Malformed)?;
        if !is_name(name) {
            return Err(ExpandError::Malformed);
        }
        let value = env(name).ok_or_else(|| ExpandError::Unset(name.to_owned()))?;
        expanded.push_str(&fit(text.len() - from_dollar.len(), name, value)?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(Cow::Owned(expanded))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_and_literals_kept() {
        let env = |name: &str| match name {
            "HOST" => Some("db".to_owned()),
            "TRICKY" => Some("${HOST}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, expected) in [
            ("plain $1 $ { }", "plain $1 $ { }"),
            ("a-${HOST}-b", "a-db-b"),
            ("${HOST}${HOST}", "dbdb"),
            ("${EMPTY}", ""),
            ("$${HOST}", "${HOST}"),
            ("$${HOST}${HOST}", "${HOST}db"),
            ("${TRICKY}", "${HOST}"),
        ] {
            assert_eq!(expand(text, &env, &as_it_is), Ok(expected.into()), "{text}");
        }
        assert_eq!(expand("x${NOPE}", &env, &as_it_is), Err(ExpandError::Unset("NOPE".to_owned())));
        for text in ["${", "${}", "${A B}", "${1A}", "x ${HOST"] {
            assert_eq!(expand(text, &env, &as_it_is), Err(ExpandError::Malformed), "{text}");
        }
    }
}
