//! An inbox that reads Kafka topics.

use oncebox_core::inbox::{Settings, StartPolicy};
use oncebox_core::outbox::check_topic;

use crate::reader::{Entry, Section};

/// The keys of an inbox that reads Kafka topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaInbox {
    /// `topics`: what to read. Required.
    pub topics: Vec<String>,
    /// `group`: the Kafka consumer group. Default: the name of the consumer.
    pub group: String,
    /// `start`: where to begin when no position is known: `earliest`, `latest`, `group` or `fail`.
    pub start: StartPolicy,
    /// `retention_check`: what to do if the topic keeps messages longer than `retention`.
    pub retention_check: RetentionCheck,
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

/// The keys that only topics have.
pub(super) const KEYS: &[&str] = &["group", "start", "retention_check"];

pub(super) const TOPICS_FIX: &str = "name at least one topic, as in [\"stock.updates\"]";

/// `consumer` is the default of the group.
pub(super) fn read<'c, 'a>(
    section: &mut Section<'c, 'a>,
    entry: Entry<'c, 'a>,
    consumer: Option<&str>,
    has_brokers: bool,
    taken: &mut Vec<String>,
) -> Option<KafkaInbox> {
    if !has_brokers {
        entry.report("an inbox that reads topics needs brokers", "add [kafka] with `brokers`");
    }
    let (group, given) = match section.optional("group") {
        Some(entry) => (entry.filled_text(), Some(entry)),
        None => (consumer.map(str::to_owned), None),
    };
    if group.as_ref().is_some_and(|group| taken.contains(group)) {
        let message = "another inbox has this Kafka group too, so each would get only a part of the messages";
        let fix = "give each inbox its own `group`";
        match given {
            Some(entry) => entry.report(message, fix),
            None => section.report_key("consumer", message, fix),
        }
    }
    taken.extend(group.clone());
    let start = [
        ("earliest", StartPolicy::Earliest),
        ("latest", StartPolicy::Latest),
        ("group", StartPolicy::Group),
        ("fail", StartPolicy::Fail),
    ];
    let start = section.or("start", Settings::default().start, |e| e.choice(&start));
    let check = [("warn", RetentionCheck::Warn), ("refuse", RetentionCheck::Refuse)];
    let retention_check = section.or("retention_check", RetentionCheck::default(), |e| e.choice(&check));
    Some(KafkaInbox { topics: topics(entry)?, group: group?, start, retention_check })
}

fn topics(entry: Entry<'_, '_>) -> Option<Vec<String>> {
    if entry.is_empty_array() {
        entry.report("the list is empty", TOPICS_FIX);
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
