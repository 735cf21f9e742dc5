//! The path of an inbox, with its parameters.

use std::fmt;
use std::str::FromStr;

/// The longest path, in bytes. It is the topic of the messages, and stores take that many everywhere.
pub const MAX_PATH_BYTES: usize = 249;

/// The path of an inbox: `/in/orders`, or with parameters, `/in/{tenant}/orders`.
///
/// ```
/// use oncebox::http::PathPattern;
///
/// let path: PathPattern = "/in/{tenant}/orders".parse()?;
/// assert_eq!(path.parameters().collect::<Vec<_>>(), ["tenant"]);
/// assert!(path.takes_the_same_requests_as(&"/in/{shop}/orders".parse()?));
/// # Ok::<(), oncebox::http::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(String);

/// Why a text is not the path of an inbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` cannot be the path of an inbox: {problem}")]
pub struct PatternError {
    path: String,
    problem: String,
}

impl PathPattern {
    /// The path as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names of the parameters, in their order.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter_map(parameter)
    }

    /// Whether no request could be told apart: the same path, whatever the parameters are called.
    #[must_use]
    pub fn takes_the_same_requests_as(&self, other: &Self) -> bool {
        let shape = |pattern: &Self| -> Vec<Option<String>> {
            let literal = |segment: &str| parameter(segment).is_none().then(|| segment.to_owned());
            pattern.0.split('/').map(literal).collect()
        };
        shape(self) == shape(other)
    }
}

/// The name in `{name}`.
fn parameter(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

impl FromStr for PathPattern {
    type Err = PatternError;

    fn from_str(path: &str) -> Result<Self, PatternError> {
        let refuse = |problem: &str| Err(PatternError { path: path.to_owned(), problem: problem.to_owned() });
        if path.len() > MAX_PATH_BYTES {
            return refuse(&format!("it has {} bytes, more than {MAX_PATH_BYTES}", path.len()));
        }
        let Some(segments) = path.strip_prefix('/') else { return refuse("it must begin with `/`") };
        let mut seen = Vec::new();
        for segment in segments.split('/') {
            if segment.is_empty() {
                return refuse("a part between two `/` is empty");
            }
            if let Some(name) = parameter(segment) {
                if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                    return refuse(
                        "the name of a parameter has letters, digits and underscores, as in {tenant}",
                    );
                }
                if seen.contains(&name) {
                    return refuse("two of its parameters have the same name");
                }
                seen.push(name);
            } else if !segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b)) {
                return refuse(
                    "it has letters, digits, `-`, `.`, `_`, `~`, and parameters as in /in/{tenant}/orders",
                );
            } else if matches!(segment, "." | "..") {
                return refuse("clients take `.` and `..` out of a path");
            }
        }
        Ok(Self(path.to_owned()))
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::post;
    use proptest::prelude::*;

    #[test]
    fn odd_paths_are_refused_with_the_reason() {
        for (path, reason) in [
            ("", "begin with `/`"),
            ("in/orders", "begin with `/`"),
            ("/", "is empty"),
            ("/in/", "is empty"),
            ("/in//orders", "is empty"),
            ("/in/{}", "name of a parameter"),
            ("/in/{*rest}", "name of a parameter"),
            ("/in/{a}/{a}", "same name"),
            ("/in/{a}b", "letters, digits"),
            ("/in/a b", "letters, digits"),
            ("/in/%20", "letters, digits"),
            ("/in/ü", "letters, digits"),
            ("/in/../etc", "`..`"),
            (&*format!("/{}", "x".repeat(249)), "250 bytes"),
        ] {
            let error = path.parse::<PathPattern>().unwrap_err().to_string();
            assert!(error.contains(reason), "{path}: {error}");
        }
    }

    proptest! {
        /// Whatever is taken here is taken by the router, which panics otherwise.
        #[test]
        fn the_router_takes_every_pattern(one in pattern(), other in pattern()) {
            let (one, other): (PathPattern, PathPattern) = (one.parse().unwrap(), other.parse().unwrap());
            let router = Router::<()>::new().route(one.as_str(), post(async || {}));
            if !one.takes_the_same_requests_as(&other) {
                drop(router.route(other.as_str(), post(async || {})));
            }
        }
    }

    fn pattern() -> impl Strategy<Value = String> {
        let segment = prop_oneof!["[ab~._-]{1,2}0", "[ab]", Just("{a}".to_owned()), Just("{b_1}".to_owned())];
        prop::collection::vec(segment, 1..4)
            .prop_map(|segments| segments.iter().map(|segment| format!("/{segment}")).collect::<String>())
            .prop_filter("a name once", |path| path.parse::<PathPattern>().is_ok())
    }
}
