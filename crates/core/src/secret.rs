//! Values that must not show up in a log, an error or a panic.

use std::fmt;

/// A text with credentials in it, such as a database URL. `Debug` does not show it.
///
/// ```
/// use oncebox_core::secret::Secret;
///
/// let url = Secret::new("postgres://erp:hunter2@db/erp?sslpassword=x");
/// assert_eq!(format!("{url:?}"), "***");
/// assert_eq!(url.redacted(), "postgres://erp:***@db/erp?sslpassword=***");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the driver and nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The URL with its password and password-like parameters replaced by `***`, for logs and errors.
    #[must_use]
    pub fn redacted(&self) -> String {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            // Not a URL, so nothing tells which part of it is harmless.
            return "***".to_owned();
        };
        // A password with an unescaped `@`, `/` or `?` makes a URL ambiguous. Everything up to the last `@` is taken for
        // credentials: hiding a bit of the address is better than showing a bit of the password. A file has neither.
        let at = if scheme == "sqlite" { None } else { rest.rfind('@') };
        let (credentials, address) = at.map_or(("", rest), |at| rest.split_at(at));
        let user = credentials.split_once(':').map_or(credentials, |(user, _)| user);
        let hidden = if user.len() < credentials.len() { ":***" } else { "" };
        format!("{scheme}://{user}{hidden}{}", redact_query(address))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

fn redact_query(address: &str) -> String {
    let Some((path, query)) = address.split_once('?') else {
        return address.to_owned();
    };
    let parameters = query.split('&').map(|parameter| match parameter.split_once('=') {
        Some((name, _)) if is_secret_name(name) => format!("{name}=***"),
        _ => parameter.to_owned(),
    });
    format!("{path}?{}", parameters.collect::<Vec<_>>().join("&"))
}

/// Whether the value behind a name of a URL parameter or a librdkafka property is not for showing.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    // The last two hold whole credentials in a syntax of their own.
    const PARTS: [&str; 7] =
        ["password", "secret", "key.pem", "token", "credential", "jaas", "oauthbearer.config"];
    let name = name.to_ascii_lowercase();
    PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_and_the_rest_is_shown() {
        for (url, shown) in [
            ("postgres://erp@localhost/erp", "postgres://erp@localhost/erp"),
            ("postgres://localhost:5432/erp", "postgres://localhost:5432/erp"),
            ("postgres://erp:pw@localhost:5432/erp", "postgres://erp:***@localhost:5432/erp"),
            ("postgres://erp:p@w/x?y@host/erp", "postgres://erp:***@host/erp"),
            ("postgres://host/erp?user=a&password=pw", "postgres://host/erp?user=a&password=***"),
            (
                "postgres://h/e?sslmode=require&SSLPassword=pw&a",
                "postgres://h/e?sslmode=require&SSLPassword=***&a",
            ),
            ("sqlite:///data/a:b@c.db?mode=rwc", "sqlite:///data/a:b@c.db?mode=rwc"),
            ("hunter2", "***"),
        ] {
            assert_eq!(Secret::new(url).redacted(), shown);
        }
    }
}
