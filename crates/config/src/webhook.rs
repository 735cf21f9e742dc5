//! `[[webhook]]`: events that go out by HTTP.

use std::fmt;
use std::time::Duration;

use oncebox_core::inbox::RetryPolicy;
use oncebox_core::outbox::{KEEP_TRYING, MAX_TOPIC_BYTES, is_name_of_a_sink};
use oncebox_core::secret::Secret;
use url::{Host, Url};

use super::bounds::{self, duration_within};
use super::reader::{Entry, Section};

/// `[[webhook]]`: where the events of some topics are posted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConfig {
    /// `name`: what it is called. Required with `copy`: whose copies are whose is told by it.
    pub name: Option<String>,
    /// `copy`: it gets copies of the events of its topics, which go where they would go without it too. Default false: it takes them.
    pub copy: bool,
    /// `topics`: names, or patterns in which `*` stands for anything. Required. The first webhook that fits takes an event.
    pub topics: Vec<String>,
    /// `url`: http or https. Required.
    pub url: WebhookUrl,
    /// `secret`: what requests are signed with, so that the receiver can tell them from others'.
    pub secret: Option<Secret>,
    /// `timeout`: how long one request may take, at most `5m`. The default is the sink's.
    pub timeout: Option<Duration>,
    /// `retry`: how often and how fast. The default is [`KEEP_TRYING`]: without `attempts` an event is tried until it is
    /// delivered.
    pub retry: RetryPolicy,
    /// `at_once`: how many requests are under way at once, 1 to 256. The default is the sink's.
    pub at_once: Option<usize>,
    /// `park_on`: the statuses, 300 to 599, that say that this very event is wrong. The default is the sink's.
    pub park_on: Option<Vec<u16>>,
    /// `on_failure`: `park-key` parks the later events of a key behind one that is parked. Default `park`: they go on.
    pub parks_keys: bool,
    /// `headers`: further headers of every request. Those that oncebox writes itself are refused when it starts.
    pub headers: Vec<(String, Secret)>,
}

/// The URL of a webhook, or of a collector. It may hold a token anywhere, so only its host is ever shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(Url);

impl WebhookUrl {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https")).map(Self)
    }

    pub(super) fn has_credentials(&self) -> bool {
        !self.0.username().is_empty() || self.0.password().is_some()
    }

    /// The URL itself, for the client and nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.as_str()
    }

    /// Scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }

    /// Whether the events travel in the clear to another machine.
    #[must_use]
    pub fn is_in_the_clear(&self) -> bool {
        let here = match self.0.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.to_canonical().is_loopback(),
            None => false,
        };
        self.0.scheme() == "http" && !here
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/***", self.origin())
    }
}

/// `taken` holds the patterns that the earlier webhooks take, `names` what they are called.
pub(super) fn read(
    mut section: Section<'_, '_>,
    taken: &mut Vec<String>,
    names: &mut Vec<String>,
) -> Option<WebhookConfig> {
    let copy = section.or("copy", false, |e| e.boolean());
    let name = if copy {
        section.required("name", "a webhook that gets copies needs a name", NAME_FIX)
    } else {
        section.optional("name")
    };
    let name = name.and_then(|entry| name_of(&entry, names));
    // Who gets copies takes nothing away from others.
    let mut copied = Vec::new();
    let taken = if copy { &mut copied } else { taken };
    let topics =
        section.required("topics", "it is missing", TOPICS_FIX).and_then(|entry| topics(entry, taken));
    let url = section
        .required("url", "it is missing", "write where the events are posted to, as in \"https://host/path\"")
        .and_then(|entry| url(&entry));
    let secret = section.or("secret", None, |e| e.filled_text().map(|text| Some(Secret::new(text))));
    let timeouts = Duration::from_millis(100)..=Duration::from_secs(5 * 60);
    let timeout = section.or("timeout", None, |e| duration_within(&e, timeouts).map(Some));
    let retry = section.or("retry", KEEP_TRYING, |e| Some(bounds::retry(e.into_section()?, KEEP_TRYING)));
    let at_once =
        section.or("at_once", None, |e| e.integer(&(1..=256)).map(|requests| usize::try_from(requests).ok()));
    let park_on = section.or("park_on", None, |e| Some(statuses(e)));
    let parks_keys = section.or("on_failure", false, |e| e.choice(&[("park", false), ("park-key", true)]));
    let headers = section.or("headers", Vec::new(), |e| e.into_section().map(headers));
    section.finish();
    Some(WebhookConfig {
        name,
        copy,
        topics: topics?,
        url: url?,
        secret,
        timeout,
        retry,
        at_once,
        park_on,
        parks_keys,
        headers,
    })
}

const NAME_FIX: &str =
    "write `name = \"crm\"`: 1 to 60 letters, digits, `_` and `-`, and not `main`; it should stay as it is";

fn name_of(entry: &Entry<'_, '_>, names: &mut Vec<String>) -> Option<String> {
    let name = entry.text()?;
    if !is_name_of_a_sink(&name) {
        entry.report("this is not a name for a webhook", NAME_FIX);
        return None;
    }
    if names.contains(&name) {
        entry.report(format!("another webhook is called {name} too"), "give each a name of its own");
        return None;
    }
    names.push(name.clone());
    Some(name)
}

pub(super) const TOPICS_FIX: &str = "name at least one topic or pattern, as in [\"invoice.*\"]";

/// Topics and patterns that no earlier entry takes.
pub(super) fn topics(entry: Entry<'_, '_>, taken: &mut Vec<String>) -> Option<Vec<String>> {
    if entry.is_empty_array() {
        entry.report("the list is empty", TOPICS_FIX);
        return None;
    }
    let mut topics = Vec::new();
    for item in entry.into_items("an array of topic names or patterns")? {
        let Some(topic) = item.text() else { continue };
        if !is_pattern(&topic) {
            item.report(
                "this is neither a topic nor a pattern",
                "use up to 249 letters, digits, `.`, `_` and `-`, and `*` for anything",
            );
        } else if taken.contains(&topic) {
            item.report("an earlier entry takes these events already", "remove one of them");
        } else {
            taken.push(topic.clone());
            topics.push(topic);
        }
    }
    Some(topics)
}

fn is_pattern(text: &str) -> bool {
    (1..=MAX_TOPIC_BYTES).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'*'))
}

/// Reads the URL without ever repeating it in a message: it may hold a token.
fn url(entry: &Entry<'_, '_>) -> Option<WebhookUrl> {
    let text = entry.url_text(false)?;
    let url = WebhookUrl::parse(&text);
    if url.is_none() {
        entry.report("this is not a URL of a web server", "write http://HOST/PATH or https://HOST/PATH");
    }
    url
}

fn statuses(entry: Entry<'_, '_>) -> Option<Vec<u16>> {
    let mut statuses = Vec::new();
    for item in entry.into_items("an array of HTTP statuses, as in [400, 422]")? {
        let Some(status) = item.integer(&(300..=599)).and_then(|status| u16::try_from(status).ok()) else {
            continue;
        };
        if statuses.contains(&status) {
            item.report(format!("{status} stands there twice"), "remove one of them");
        }
        statuses.push(status);
    }
    Some(statuses)
}

pub(super) fn headers(section: Section<'_, '_>) -> Vec<(String, Secret)> {
    let mut headers = Vec::new();
    for (name, entry) in section.into_entries() {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(is_token) {
            entry.report("this is not a name of a header", "use letters, digits and `-`");
            continue;
        }
        let Some(value) = entry.scalar() else { continue };
        if !value.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b)) {
            entry.report("this is not a value of a header", "use printable ASCII characters on one line");
            continue;
        }
        headers.push((name, Secret::new(value)));
    }
    headers
}
