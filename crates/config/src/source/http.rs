//! An inbox that takes HTTP requests.

mod verify;

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use oncebox_core::inbox::Selector;

pub use self::verify::{SecretsConfig, VerifyConfig, VerifyScheme};
use crate::bounds::{self, duration_within};
use crate::inbox::{Taken, selector};
use crate::reader::Entry;

/// `[inbox.http]`: the messages are requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpInbox {
    /// `path`: where requests are posted to, as in `/in/orders` or `/in/{tenant}/orders`. Required.
    pub path: String,
    /// `mode`: when a request is answered. Default `apply`.
    pub mode: HttpMode,
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
    /// `handshake`: who may send, for senders that ask first, as CloudEvents has it. Default: nobody is answered.
    pub handshake: Option<HandshakeConfig>,
}

/// `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMode {
    /// `apply`: a request is answered when its message is applied.
    Apply,
    /// `accept`: it is answered when its message is stored, and the message is applied later.
    Accept,
}

/// `handshake = { origins = ["eventgrid.azure.net"], rate = 120 }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeConfig {
    /// `origins`: who may send. `["*"]` is everybody. Required.
    pub origins: Vec<String>,
    /// `rate`: how many requests per minute. Default: as many as they like.
    pub rate: Option<NonZeroU32>,
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

pub(super) fn read<'c, 'a>(
    entry: Entry<'c, 'a>,
    reach: Reach,
    taken: &mut Taken<'c, 'a>,
) -> Option<HttpInbox> {
    if reach == Reach::Nobody {
        entry.report("an inbox that takes requests needs an address", "add [http] with `listen`");
    }
    let mut section = entry.into_section()?;
    let path = section
        .required("path", "it is missing", "write where requests are posted to, as in \"/in/orders\"")
        .and_then(|entry| path(&entry, &mut taken.paths));
    let mode = section.or("mode", HttpMode::Apply, |e| {
        let mode = e.choice(&[("apply", HttpMode::Apply), ("accept", HttpMode::Accept)])?;
        if mode == HttpMode::Accept {
            taken.accepts.push(e.place());
        }
        Some(mode)
    });
    let body = section.or("body", String::new(), |e| e.text());
    let status = section.or("status", if body.is_empty() { 204 } else { 200 }, |e| {
        let status = e.integer(&(200..=204))?;
        if mode == HttpMode::Accept {
            e.report("what is only accepted is always answered with 202", "remove it");
        } else if !STATUSES.contains(&status) {
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
    let verify = verify.and_then(verify::read);
    let handshake = section.optional("handshake").and_then(handshake);
    section.finish();
    Some(HttpInbox {
        path: path?,
        mode,
        status: u16::try_from(status).unwrap_or_default(),
        body,
        timeout,
        max_body,
        key,
        compare_body,
        verify,
        handshake,
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

fn handshake(entry: Entry<'_, '_>) -> Option<HandshakeConfig> {
    let mut section = entry.into_section()?;
    let fix = "name who may send, as in [\"eventgrid.azure.net\"], or [\"*\"]";
    let origins = section.required("origins", "it is missing", fix).and_then(|entry| {
        if entry.is_empty_array() {
            entry.report("the list is empty", fix);
        }
        let items = entry.into_items("an array of names")?;
        Some(items.iter().filter_map(Entry::filled_text).collect())
    });
    let rate = section.or("rate", None, |e| {
        e.integer(&(1..=1_000_000)).map(|rate| u32::try_from(rate).ok().and_then(NonZeroU32::new))
    });
    section.finish();
    Some(HandshakeConfig { origins: origins?, rate })
}
