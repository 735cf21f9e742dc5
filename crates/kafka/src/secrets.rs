//! Keeps passwords and keys out of logs and errors.

use std::sync::Arc;

/// Shorter values are not searched for: replacing them would only garble the text.
const SHORTEST: usize = 4;

/// The values that must never be printed. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<[String]>);

impl Secrets {
    pub(crate) fn among<'a>(properties: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let secret = properties.filter(|(name, value)| is_secret(name) && value.len() >= SHORTEST);
        Self(secret.map(|(_, value)| value.to_owned()).collect())
    }

    pub(crate) fn removed_from(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }
}

/// By the words in the name, so that properties of later librdkafka versions are covered too.
pub(crate) fn is_secret(property: &str) -> bool {
    const WORDS: [&str; 5] = ["password", "secret", ".pem", "oauthbearer.config", "assertion"];
    WORDS.iter().any(|word| property.contains(word))
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_of_texts() {
        let properties = [("sasl.password", "hunter22"), ("sasl.username", "erp"), ("ssl.key.password", "x")];
        let secrets = Secrets::among(properties.into_iter());
        assert_eq!(secrets.removed_from("erp / hunter22 / x"), "erp / *** / x");
        assert_eq!(format!("{secrets:?}"), "Secrets(1)");
    }
}
