//! Values that must not show up in a log, an error or a panic.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

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
        // credentials: hiding a bit of the address is better than showing a bit of the password.
        let (credentials, address) = rest.rfind('@').map_or(("", rest), |at| rest.split_at(at));
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

/// The words in a name that say that the value behind it is not for showing. Words rather than names, so that properties
/// of later versions of a client are covered too. The last two hold whole credentials in a syntax of their own.
const WORDS: [&str; 8] =
    ["password", "secret", ".pem", "token", "credential", "assertion", "jaas", "oauthbearer.config"];

/// Whether the value behind a name of a URL parameter or of a client's property is not for showing.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// Shorter secrets are not searched for: they would be found by chance, and replacing them would only garble the text.
const SHORTEST: usize = 4;

/// Secrets that may turn up in texts of others, such as a client's log or a server's answer. Cheap to clone.
///
/// ```
/// use oncebox_core::secret::Secrets;
///
/// let secrets: Secrets = ["canary", "Bearer canary"].into_iter().collect();
/// assert_eq!(secrets.removed_from("he said: Bearer canary"), "he said: ***");
/// ```
#[derive(Clone, Default)]
pub struct Secrets(Arc<[String]>);

impl Secrets {
    /// The values whose names say that they are secret: see [`is_secret_name`].
    pub fn among<'a>(properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        properties.into_iter().filter(|(name, _)| is_secret_name(name)).map(|(_, value)| value).collect()
    }

    /// One more.
    pub fn add(&mut self, secret: &str) {
        *self = self.0.iter().map(String::as_str).chain([secret]).collect();
    }

    /// The text with `***` in place of each of them.
    #[must_use]
    pub fn removed_from(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }
}

impl<'a> FromIterator<&'a str> for Secrets {
    fn from_iter<I: IntoIterator<Item = &'a str>>(secrets: I) -> Self {
        let long_enough = secrets.into_iter().filter(|secret| secret.len() >= SHORTEST);
        let mut secrets: Vec<_> = long_enough.map(str::to_owned).collect();
        // The longest first: one may be part of another, whose rest would stay.
        secrets.sort_by_key(|secret| Reverse(secret.len()));
        Self(secrets.into())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
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
            ("postgres:///erp:pw@host/erp", "postgres:///erp:***@host/erp"),
            // A file's name may look like credentials, too.
            ("sqlite:///data/a:b@c.db?mode=rwc", "sqlite:///data/a:***@c.db?mode=rwc"),
            ("sqlite:///data/a@c.db?mode=rwc", "sqlite:///data/a@c.db?mode=rwc"),
            ("hunter2", "***"),
        ] {
            assert_eq!(Secret::new(url).redacted(), shown);
        }
    }

    #[test]
    fn secrets_are_taken_out_of_texts() {
        let properties = [("sasl.password", "hunter22"), ("sasl.username", "erp"), ("ssl.key.password", "x")];
        let secrets = Secrets::among(properties);
        assert_eq!(secrets.removed_from("erp / hunter22 / x"), "erp / *** / x");
        assert_eq!(format!("{secrets:?}"), "Secrets(1)");
    }

    #[test]
    fn a_secret_inside_another_is_removed_too() {
        let mut secrets = Secrets::default();
        for secret in ["canary", "Bearer canary", "or"] {
            secrets.add(secret);
        }
        assert_eq!(secrets.removed_from("a Bearer canary or a canary"), "a *** or a ***");
    }

    #[test]
    fn names_of_secrets_are_known_by_their_words() {
        for name in [
            "sasl.password",
            "ssl.key.pem",
            "SSLPassword",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.config",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.jaas.config",
            "access_token",
            "aws.credentials",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["sasl.username", "ssl.ca.location", "security.protocol", "client.id", "sslmode", "user"]
        {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
