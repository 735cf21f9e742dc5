//! `[[inbox]]`: a consumer.

use std::time::Duration;

use oncebox_core::inbox::{
    BatchBounds, Identity, OnFailure, RetryPolicy, Selector, SelectorSyntaxError, Settings, StalePolicy,
};
use oncebox_core::names::ConsumerName;
use oncebox_core::store::Adopt;
use oncebox_sql::PayloadKind;

use super::adopt;
use super::bounds::{self, duration};
use super::filter::{self, FilterConfig};
use super::handler::{self, HandlerConfig};
use super::reader::{Entry, Place, Section};
use super::source::{self, Offered, SourceConfig};
use super::store::StoreKind;

/// `[[inbox]]`: one consumer, where it reads from and what its messages do. The defaults are those of [`Settings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxConfig {
    /// `consumer`: the name in the dedupe key. Required; to rename it makes every message fresh again.
    pub consumer: ConsumerName,
    /// Where it reads from: `topics` or `queue`. Required.
    pub source: SourceConfig,
    /// `id` (required; a list, if several values are the id together) and `tenant` (optional): where they are in a message.
    pub identity: Identity,
    /// `where`: which messages are wanted; all without it.
    pub filter: Option<FilterConfig>,
    /// `batch`: how large a transaction may grow.
    pub batch: BatchBounds,
    /// `lanes`: how many keys of one partition are worked on side by side, 1 to 64.
    pub lanes: usize,
    /// `max_connections`: how many of the store's it may use at once. See [`Config::connections`](crate::Config::connections).
    pub max_connections: Option<u32>,
    /// `retry`: how often and how fast.
    pub retry: RetryPolicy,
    /// `crash_limit`: starts without progress before messages are run one at a time, to find the one that kills the
    /// process.
    pub crash_limit: u32,
    /// `payload`: what `:payload` is.
    pub payload: PayloadKind,
    /// `on_failure`: `park`, `park-key` or `halt`. A request that fails is given back.
    pub on_failure: OnFailure,
    /// `retention`: how long receipts are kept, the dedupe horizon. At least `1m`.
    pub retention: Duration,
    /// `stale`: what to do with a message older than the purged receipts: `apply` or `park`.
    pub stale: StalePolicy,
    /// `[inbox.handler]`: what a message does. Required.
    pub handler: HandlerConfig,
}

pub(super) fn read<'c, 'a>(
    mut section: Section<'c, 'a>,
    store: Option<StoreKind>,
    adopted: Option<&Adopt>,
    offered: &mut Offered<'_, 'c, 'a>,
    taken: &mut Taken<'c, 'a>,
) -> Option<InboxConfig> {
    let default = Settings::default();
    let consumer = section
        .required("consumer", "it is missing", "give the consumer a stable name, such as \"stock\"")
        .and_then(|entry| Some((consumer(&entry)?, entry)));
    let is_first = taken.claim_consumer(consumer.as_ref());
    // Two inboxes of one name have one problem, and not one with the group too.
    let name = consumer.as_ref().filter(|_| is_first).map(|(name, _)| name.as_str());
    let source = source::read(&mut section, name, offered, taken);
    let id = section
        .required(
            "id",
            "it is missing, and there is no default: a wrong guess drops messages or applies them twice",
            "say where the producer puts the id: key, header:NAME, json:/POINTER, cloudevents or coordinates, \
             or a list of them",
        )
        .and_then(|entry| id_of(entry, source.as_ref()));
    let tenant = section.or("tenant", None, |e| {
        if let Some(table) = adopted {
            adopt::check_tenant(table, &e);
        }
        selector_of(&e, source.as_ref()).map(Some)
    });
    let filter = section.or("where", None, |e| filter::read(e.into_section()?, source.as_ref()).map(Some));
    let batch = section.or("batch", default.batch, |e| Some(bounds::batch(e.into_section()?, default.batch)));
    let lanes = section
        .or("lanes", default.lanes, |e| e.integer(&(1..=64)).and_then(|lanes| usize::try_from(lanes).ok()));
    let max_connections =
        section.or("max_connections", None, |e| e.integer(&(1..=1000)).map(|most| u32::try_from(most).ok()));
    // Who sends a request tries again by itself.
    let takes_requests = source.as_ref().is_some_and(SourceConfig::sender_waits);
    let retry_default =
        if takes_requests { RetryPolicy { attempts: 1, ..default.retry } } else { default.retry };
    let retry = section.or("retry", retry_default, |e| Some(bounds::retry(e.into_section()?, retry_default)));
    let crash_limit = section.or("crash_limit", default.crash_limit, |e| {
        e.integer(&(1..=1000)).and_then(|limit| u32::try_from(limit).ok())
    });
    let payload = [("json", PayloadKind::Json), ("text", PayloadKind::Text), ("bytes", PayloadKind::Bytes)];
    let payload = section.or("payload", PayloadKind::default(), |e| e.choice(&payload));
    let on_failure = [("park", OnFailure::Park), ("park-key", OnFailure::ParkKey), ("halt", OnFailure::Halt)];
    let on_failure = if takes_requests {
        OnFailure::GiveBack
    } else {
        section.or("on_failure", default.on_failure, |e| e.choice(&on_failure))
    };
    let retention = section.or("retention", default.retention, |e| duration(&e, Duration::from_secs(60)));
    let stale = [("apply", StalePolicy::Apply), ("park", StalePolicy::Park)];
    let stale = section.or("stale", default.stale, |e| e.choice(&stale));
    let handler = section
        .required(
            "handler",
            "it is missing, so messages would do nothing",
            "add [inbox.handler] with `each` or `batch`",
        )
        .and_then(Entry::into_section)
        .and_then(|section| handler::read(section, store, payload));
    section.finish();

    let (consumer, _) = consumer?;
    Some(InboxConfig {
        consumer,
        source: source?,
        identity: Identity::new(id?, tenant),
        filter,
        batch,
        lanes,
        max_connections,
        retry,
        crash_limit,
        payload,
        on_failure,
        retention,
        stale,
        handler: handler?,
    })
}

/// The names that earlier inboxes of the file have taken.
#[derive(Default)]
pub(super) struct Taken<'c, 'a> {
    consumers: Vec<ConsumerName>,
    /// Each with its cluster.
    pub(super) groups: Vec<(Option<String>, String)>,
    pub(super) queues: Vec<String>,
    pub(super) paths: Vec<String>,
    /// Where it says that requests are accepted, to be applied later.
    pub(super) accepts: Vec<Place<'c, 'a>>,
}

impl Taken<'_, '_> {
    /// False if another inbox has the name.
    fn claim_consumer(&mut self, consumer: Option<&(ConsumerName, Entry<'_, '_>)>) -> bool {
        let Some((name, entry)) = consumer else { return false };
        let taken = self.consumers.contains(name);
        if taken {
            entry.report(
                format!("another inbox is called {name} too"),
                "give each inbox its own name, or list all topics in one inbox",
            );
        }
        self.consumers.push(name.clone());
        !taken
    }
}

fn consumer(entry: &Entry<'_, '_>) -> Option<ConsumerName> {
    let text = entry.text()?;
    ConsumerName::new(text)
        .map_err(|error| entry.report(error.to_string(), "use letters, digits, `.`, `_` and `-`"))
        .ok()
}

/// A selector that can find something in the messages of this source.
pub(super) fn selector_of(entry: &Entry<'_, '_>, source: Option<&SourceConfig>) -> Option<Selector> {
    let selector = selector(entry)?;
    if let Some((why, fix)) = source.and_then(|source| source.refuses(&selector)) {
        entry.report(why, fix);
    }
    Some(selector)
}

/// One selector, or the list of those that are the id together.
fn id_of(entry: Entry<'_, '_>, source: Option<&SourceConfig>) -> Option<Selector> {
    if !entry.is_array() {
        return selector_of(&entry, source);
    }
    let fix = "list what is unique only together, as in [\"json:/code\", \"json:/reference\"]";
    if entry.is_empty_array() {
        entry.report("the list is empty", fix);
        return None;
    }
    let items = entry.into_items("an array of selectors")?;
    // All of them are read, so that every mistake is reported.
    let parts: Vec<Option<Selector>> = items.iter().map(|item| selector_of(item, source)).collect();
    let parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
    Selector::all(parts).map_err(|error| items.last().map(|item| item.report(error.to_string(), fix))).ok()
}

pub(super) fn selector(entry: &Entry<'_, '_>) -> Option<Selector> {
    let text = entry.text()?;
    text.parse()
        .map_err(|error: SelectorSyntaxError| {
            entry.report(error.to_string(), "write one of these");
        })
        .ok()
}
