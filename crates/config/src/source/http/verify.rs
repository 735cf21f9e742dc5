//! How requests show who they come from.

use std::time::Duration;

use oncebox_core::secret::Secret;

use crate::bounds::duration_within;
use crate::reader::{Entry, Section};

/// `verify = { scheme = "github", secrets = ["${SECRET}"] }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyConfig {
    /// `scheme`: who signs, and how.
    pub scheme: VerifyScheme,
    /// `secrets`. Required.
    pub secrets: SecretsConfig,
    /// `tolerance`: how far the time of a request may be off, where a time is signed.
    pub tolerance: Option<Duration>,
}

/// `secrets`: any of a list will do, so that one can be changed without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretsConfig {
    /// `["${SECRET}"]`.
    Same(Vec<Secret>),
    /// `{ acme = ["${SECRET_OF_ACME}"] }`: each value of a parameter of the path has its own.
    Each {
        /// `parameter`: its name. Default `tenant`.
        parameter: String,
        /// The secrets of each value.
        secrets: Vec<(String, Vec<Secret>)>,
    },
}

/// `scheme`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyScheme {
    /// `standard`: Standard Webhooks.
    Standard,
    /// `stripe`.
    Stripe,
    /// `github`.
    Github,
    /// `shopify`.
    Shopify,
    /// `slack`.
    Slack,
    /// `hmac`: HMAC-SHA256 over the body, in a header of one's own.
    Hmac {
        /// `header`: its name. Required.
        header: String,
        /// `encoding`: `hex` or `base64`. Default `hex`.
        base64: bool,
        /// `prefix`: what stands before the signature. Default: nothing.
        prefix: String,
    },
    /// `bearer`: a token.
    Bearer,
    /// `basic`: a user and a password.
    Basic {
        /// `user`. Required.
        user: String,
    },
}

pub(super) fn read(entry: Entry<'_, '_>) -> Option<VerifyConfig> {
    // Said openly, nothing is verified.
    if !entry.is_table() {
        entry.choice(&[("none", ())]);
        return None;
    }
    let mut section = entry.into_section()?;
    let schemes = ["standard", "stripe", "github", "shopify", "slack", "hmac", "bearer", "basic"];
    let schemes: Vec<(&str, &str)> = schemes.into_iter().map(|scheme| (scheme, scheme)).collect();
    let scheme = section
        .required(
            "scheme",
            "it is missing",
            "write who signs: standard, stripe, github, shopify, slack, hmac, bearer or basic",
        )
        .and_then(|entry| entry.choice(&schemes));
    let scheme = scheme.and_then(|scheme| self::scheme(&mut section, scheme));
    let given = section.required(
        "secrets",
        "it is missing",
        "write the secret, or several while one is being changed, as in [\"${SECRET}\"]",
    );
    let secrets = match given {
        Some(each) if each.is_table() => secrets_of_each(&mut section, each),
        Some(same) => secrets(same).map(SecretsConfig::Same),
        None => None,
    };
    let tolerances = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);
    let tolerance = section.or("tolerance", None, |e| duration_within(&e, tolerances).map(Some));
    section.finish();
    Some(VerifyConfig { scheme: scheme?, secrets: secrets?, tolerance })
}

fn scheme(section: &mut Section<'_, '_>, scheme: &str) -> Option<VerifyScheme> {
    Some(match scheme {
        "standard" => VerifyScheme::Standard,
        "stripe" => VerifyScheme::Stripe,
        "github" => VerifyScheme::Github,
        "shopify" => VerifyScheme::Shopify,
        "slack" => VerifyScheme::Slack,
        "bearer" => VerifyScheme::Bearer,
        "basic" => {
            let user = section.required("user", "it is missing", "write the name of the user");
            VerifyScheme::Basic { user: user.and_then(|entry| entry.filled_text())? }
        }
        _ => {
            let header =
                section.required("header", "it is missing", "write the header that has the signature");
            let base64 = section.or("encoding", false, |e| e.choice(&[("hex", false), ("base64", true)]));
            let prefix = section.or("prefix", String::new(), |e| e.text());
            VerifyScheme::Hmac { header: header.and_then(|entry| entry.filled_text())?, base64, prefix }
        }
    })
}

fn secrets(entry: Entry<'_, '_>) -> Option<Vec<Secret>> {
    if entry.is_empty_array() {
        entry.report("the list is empty", "write at least one secret");
        return None;
    }
    let items = entry.into_items("an array of secrets")?;
    Some(items.iter().filter_map(Entry::filled_text).map(Secret::new).collect())
}

fn secrets_of_each(section: &mut Section<'_, '_>, entry: Entry<'_, '_>) -> Option<SecretsConfig> {
    let parameter = section.or("parameter", "tenant".to_owned(), |e| e.filled_text());
    let place = entry.place();
    let entries = entry.into_section()?.into_entries();
    if entries.is_empty() {
        place.report("nobody has a secret", "write those of each, as in { acme = [\"${SECRET_OF_ACME}\"] }");
        return None;
    }
    let secrets = entries.into_iter().filter_map(|(value, entry)| Some((value, secrets(entry)?))).collect();
    Some(SecretsConfig::Each { parameter, secrets })
}
