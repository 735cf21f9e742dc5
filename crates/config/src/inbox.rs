//! `[[inbox]]`: a consumer.

use std::time::Duration;

use oncebox_core::inbox::{
    BatchBounds, Identity, OnFailure, RetryPolicy, Selector, SelectorSyntaxError, Settings, StalePolicy,
    StartPolicy,
};
use oncebox_core::names::ConsumerName;
use oncebox_core::outbox::check_topic;
use oncebox_core::store::Adopt;
use oncebox_sql::PayloadKind;

use super::adopt;
use super::bounds::{self, duration};
use super::handler::{self, HandlerConfig};
use super::reader::{Entry, Section};
use super::store::StoreKind;

/// `[[inbox]]`: one consumer, its topics and what its messages do. The defaults are those of [`Settings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxConfig {
    /// `consumer`: the name in the dedupe key. Required; to rename it makes every message fresh again.
    pub consumer: ConsumerName,
    /// `group`: the Kafka consumer group. Default: the name of the consumer.
    pub group: String,
    /// `topics`: what to read. Required.
    pub topics: Vec<String>,
    /// `id` (required; a list, if several values are the id together) and `tenant` (optional): where they are in a message.
    pub identity: Identity,
    /// `start`: where to begin when no position is known: `earliest`, `latest`, `group` or `fail`.
    pub start: StartPolicy,
    /// `batch`: how large a transaction may grow.
    pub batch: BatchBounds,
    /// `lanes`: how many keys of one partition are worked on side by side, 1 to 64.
    pub lanes: usize,
    /// `retry`: how often and how fast.
    pub retry: RetryPolicy,
    /// `crash_limit`: starts without progress before messages are run one at a time, to find the one that kills the
    /// process.
    pub crash_limit: u32,
    /// `payload`: what `:payload` is.
    pub payload: PayloadKind,
    /// `on_failure`: `park`, `park-key` or `halt`.
    pub on_failure: OnFailure,
    /// `retention`: how long receipts are kept, the dedupe horizon. At least `1m`.
    pub retention: Duration,
    /// `retention_check`: what to do if the topic keeps messages longer than `retention`.
    pub retention_check: RetentionCheck,
    /// `stale`: what to do with a message older than the purged receipts: `apply` or `park`.
    pub stale: StalePolicy,
    /// `[inbox.handler]`: what a message does. Required.
    pub handler: HandlerConfig,
}

/// What happens if a topic keeps messages longer than receipts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetentionCheck {
    /// Say so and go on.
    #[default]
    Warn,
    /// Do not start.
    Refuse,
}

pub(super) fn read(
    mut section: Section<'_, '_>,
    store: Option<StoreKind>,
    adopted: Option<&Adopt>,
    taken: &mut Taken,
) -> Option<InboxConfig> {
    let default = Settings::default();
    let consumer = section
        .required("consumer", "it is missing", "give the consumer a stable name, such as \"stock\"")
        .and_then(|entry| Some((consumer(&entry)?, entry)));
    let group = section.optional("group").map(|entry| (entry.filled_text(), entry));
    taken.claim(consumer.as_ref(), group.as_ref());
    let topics = section
        .required("topics", "it is missing", "name at least one topic, as in [\"stock.updates\"]")
        .and_then(topics);
    let id = section
        .required(
            "id",
            "it is missing, and there is no default: a wrong guess drops messages or applies them twice",
            "say where the producer puts the id: key, header:NAME, json:/POINTER, cloudevents or coordinates, \
             or a list of them",
        )
        .and_then(id);
    let tenant = section.or("tenant", None, |e| {
        if let Some(table) = adopted {
            adopt::check_tenant(table, &e);
        }
        selector(&e).map(Some)
    });
    let start = [
        ("earliest", StartPolicy::Earliest),
        ("latest", StartPolicy::Latest),
        ("group", StartPolicy::Group),
        ("fail", StartPolicy::Fail),
    ];
    let start = section.or("start", default.start, |e| e.choice(&start));
    let batch = section.or("batch", default.batch, |e| Some(bounds::batch(e.into_section()?, default.batch)));
    let lanes = section
        .or("lanes", default.lanes, |e| e.integer(&(1..=64)).and_then(|lanes| usize::try_from(lanes).ok()));
    let retry = section.or("retry", default.retry, |e| Some(bounds::retry(e.into_section()?, default.retry)));
    let crash_limit = section.or("crash_limit", default.crash_limit, |e| {
        e.integer(&(1..=1000)).and_then(|limit| u32::try_from(limit).ok())
    });
    let payload = [("json", PayloadKind::Json), ("text", PayloadKind::Text), ("bytes", PayloadKind::Bytes)];
    let payload = section.or("payload", PayloadKind::default(), |e| e.choice(&payload));
    let on_failure = [("park", OnFailure::Park), ("park-key", OnFailure::ParkKey), ("halt", OnFailure::Halt)];
    let on_failure = section.or("on_failure", default.on_failure, |e| e.choice(&on_failure));
    let retention = section.or("retention", default.retention, |e| duration(&e, Duration::from_secs(60)));
    let check = [("warn", RetentionCheck::Warn), ("refuse", RetentionCheck::Refuse)];
    let retention_check = section.or("retention_check", RetentionCheck::default(), |e| e.choice(&check));
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
        group: group.map_or_else(|| Some(consumer.to_string()), |(group, _)| group)?,
        consumer,
        topics: topics?,
        identity: Identity::new(id?, tenant),
        start,
        batch,
        lanes,
        retry,
        crash_limit,
        payload,
        on_failure,
        retention,
        retention_check,
        stale,
        handler: handler?,
    })
}

/// The names that earlier inboxes of the file have taken.
#[derive(Debug, Default)]
pub(super) struct Taken {
    consumers: Vec<ConsumerName>,
    groups: Vec<String>,
}

impl Taken {
    fn claim<'e>(
        &mut self,
        consumer: Option<&'e (ConsumerName, Entry<'_, '_>)>,
        group: Option<&'e (Option<String>, Entry<'_, '_>)>,
    ) {
        let twice = consumer.filter(|(name, _)| self.consumers.contains(name));
        if let Some((name, entry)) = twice {
            entry.report(
                format!("another inbox is called {name} too"),
                "give each inbox its own name, or list all topics in one inbox",
            );
        }
        self.consumers.extend(consumer.map(|(name, _)| name.clone()));
        let (group, entry) = match (group, consumer) {
            (Some((Some(group), entry)), _) => (group.clone(), entry),
            (None, Some((name, entry))) => (name.to_string(), entry),
            _ => return,
        };
        if twice.is_none() && self.groups.contains(&group) {
            entry.report(
                "another inbox has this Kafka group too, so each would get only a part of the messages",
                "give each inbox its own `group`",
            );
        }
        self.groups.push(group);
    }
}

fn consumer(entry: &Entry<'_, '_>) -> Option<ConsumerName> {
    let text = entry.text()?;
    ConsumerName::new(text)
        .map_err(|error| entry.report(error.to_string(), "use letters, digits, `.`, `_` and `-`"))
        .ok()
}

/// One selector, or the list of those that are the id together.
fn id(entry: Entry<'_, '_>) -> Option<Selector> {
    if !entry.is_array() {
        return selector(&entry);
    }
    let fix = "list what is unique only together, as in [\"json:/code\", \"json:/reference\"]";
    if entry.is_empty_array() {
        entry.report("the list is empty", fix);
        return None;
    }
    let items = entry.into_items("an array of selectors")?;
    // All of them are read, so that every mistake is reported.
    let parts: Vec<Option<Selector>> = items.iter().map(selector).collect();
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

fn topics(entry: Entry<'_, '_>) -> Option<Vec<String>> {
    let fix = "name at least one topic, as in [\"stock.updates\"]";
    if entry.is_empty_array() {
        entry.report("the list is empty", fix);
        return None;
    }
    let mut topics = Vec::new();
    for item in entry.into_items("an array of topic names")? {
        let Some(topic) = item.text() else { continue };
        if check_topic(&topic).is_err() {
            item.report(
                "this is not a name of a Kafka topic",
                "use up to 249 letters, digits, `.`, `_` and `-`; patterns are not supported",
            );
        } else if topics.contains(&topic) {
            item.report("this topic is listed twice", "remove one of them");
        } else {
            topics.push(topic);
        }
    }
    Some(topics)
}
