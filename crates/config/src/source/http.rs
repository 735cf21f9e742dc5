//! An inbox that takes HTTP requests.

use std::ops::RangeInclusive;
use std::time::Duration;

use oncebox_core::inbox::Selector;
use oncebox_core::secret::Secret;

use crate::bounds::{self, duration_within};
use crate::inbox::selector;
use crate::reader::{Entry, Section};

/// `[inbox.http]`: the messages are requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpInbox {
    /// `path`: where requests are posted to, as in `/in/orders` or `/in/{tenant}/orders`. Required.
    pub path: String,
    /// `status`: what a request is answered with once its message is applied: 200, 201 or 204. Default: 200 if there is
    /// a `body`, otherwise 204.
    pub status: u16,
    /// `body`: the text of that answer. Default: none.
    pub body: String,
    /// `timeout`: how long a request waits for its answer, from `100ms` to `5m`. Default `10s`.
    pub timeout: Duration,
    /// `max_body`: the largest body, up to 16 MiB. Default 1 MiB.
    pub max_body: usize,
    /// `key`: where the key of a message is, for the order. Default: messages have no key.
    pub key: Option<Selector>,
    /// `compare_body`: whether a request with an id that was used for another body is told so. Default `true`.
    pub compare_body: bool,
    /// `verify`: how a request shows who it comes from. Required where others can reach the address.
    pub verify: Option<VerifyConfig>,
}

/// `verify = { scheme = "github", secrets = ["${SECRET}"] }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyConfig {
    /// `scheme`: who signs, and how.
    pub scheme: VerifyScheme,
    /// `secrets`: any of them will do, so that one can be changed without a gap. Required.
    pub secrets: Vec<Secret>,
    /// `tolerance`: how far the time of a request may be off, where a time is signed.
    pub tolerance: Option<Duration>,
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

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(5 * 60);
const DEFAULT_MAX_BODY: usize = 1024 * 1024;
const BODIES: RangeInclusive<i64> = 1..=16 * 1024 * 1024;
const STATUSES: [i64; 3] = [200, 201, 204];

/// What `[http]` says about who can send requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// There is no `[http]`.
    Nobody,
    /// Only this machine.
    Loopback,
    /// Others too.
    Others,
}

pub(super) fn read(entry: Entry<'_, '_>, reach: Reach, taken: &mut Vec<String>) -> Option<HttpInbox> {
    if reach == Reach::Nobody {
        entry.report("an inbox that takes requests needs an address", "add [http] with `listen`");
    }
    let mut section = entry.into_section()?;
    let path = section
        .required("path", "it is missing", "write where requests are posted to, as in \"/in/orders\"")
        .and_then(|entry| path(&entry, taken));
    section.or("mode", (), |e| e.choice(&[("apply", ())]));
    let body = section.or("body", String::new(), |e| e.text());
    let status = section.or("status", if body.is_empty() { 204 } else { 200 }, |e| {
        let status = e.integer(&(200..=204))?;
        if !STATUSES.contains(&status) {
            e.report("this is no answer to a request that was applied", "write 200, 201 or 204");
        } else if status == 204 && !body.is_empty() {
            e.report("an answer with status 204 has no body", "write 200, or remove `body`");
        }
        Some(status)
    });
    let timeout = section.or("timeout", DEFAULT_TIMEOUT, |e| duration_within(&e, TIMEOUTS));
    let max_body = section.or("max_body", DEFAULT_MAX_BODY, |e| bounds::size(&e, &BODIES));
    let key = section.or("key", None, |e| selector(&e).map(Some));
    let compare_body = section.or("compare_body", true, |e| e.boolean());
    let verify = section.optional("verify");
    if verify.is_none() && reach == Reach::Others {
        section.report_key(
            "verify",
            "others can reach this address, and nothing shows who sends a request",
            "write how requests are signed, as in { scheme = \"standard\", secrets = [\"${SECRET}\"] }, or \"none\"",
        );
    }
    let verify = verify.and_then(verify_config);
    section.finish();
    Some(HttpInbox {
        path: path?,
        status: u16::try_from(status).unwrap_or_default(),
        body,
        timeout,
        max_body,
        key,
        compare_body,
        verify,
    })
}

fn path(entry: &Entry<'_, '_>, taken: &mut Vec<String>) -> Option<String> {
    let path = entry.filled_text()?;
    if taken.contains(&path) {
        entry.report("another inbox has this path too", "give each inbox its own path");
    }
    taken.push(path.clone());
    match (entry.surroundings().check_path)(&path) {
        Ok(()) => Some(path),
        Err(problem) => {
            entry.report(problem, "write a path such as \"/in/orders\" or \"/in/{tenant}/orders\"");
            None
        }
    }
}

fn verify_config(entry: Entry<'_, '_>) -> Option<VerifyConfig> {
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
    let secrets = section
        .required(
            "secrets",
            "it is missing",
            "write the secret, or several while one is being changed, as in [\"${SECRET}\"]",
        )
        .and_then(secrets);
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
