//! An inbox that reads Kafka topics.

use std::collections::BTreeMap;
use std::fmt;

use oncebox_core::inbox::{Settings, StartPolicy};
use oncebox_core::outbox::check_topic;

use crate::kafka::{Clusters, properties, report_incomplete, shown};
use crate::reader::{Entry, Section};

/// The keys of an inbox that reads Kafka topics.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaInbox {
    /// `topics`: what to read: names, or patterns that begin with `^`. Required.
    pub topics: Vec<String>,
    /// `kafka`: the cluster of `[kafka.NAME]`. Default: the one of `[kafka]`.
    pub cluster: Option<String>,
    /// `[inbox.properties]`: librdkafka properties of this inbox, over those of its cluster.
    pub properties: BTreeMap<String, String>,
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
pub(super) const KEYS: &[&str] = &["group", "start", "retention_check", "kafka", "properties"];

pub(super) const TOPICS_FIX: &str = "name at least one topic, as in [\"stock.updates\"]";

/// `consumer` is the default of the group.
pub(super) fn read<'c, 'a>(
    section: &mut Section<'c, 'a>,
    entry: Entry<'c, 'a>,
    consumer: Option<&str>,
    clusters: &mut Clusters<'c, 'a>,
    taken: &mut Vec<(Option<String>, String)>,
) -> Option<KafkaInbox> {
    let cluster = cluster(section, &entry, clusters);
    let properties = own_properties(section, cluster.as_ref(), clusters);
    let (group, given) = match section.optional("group") {
        Some(entry) => (entry.filled_text(), Some(entry)),
        None => (consumer.map(str::to_owned), None),
    };
    let member = cluster.clone().zip(group.clone());
    if member.as_ref().is_some_and(|member| taken.contains(member)) {
        let message = "another inbox has this Kafka group too, so each would get only a part of the messages";
        let fix = "give each inbox its own `group`";
        match given {
            Some(entry) => entry.report(message, fix),
            None => section.report_key("consumer", message, fix),
        }
    }
    taken.extend(member);
    let start = [
        ("earliest", StartPolicy::Earliest),
        ("latest", StartPolicy::Latest),
        ("group", StartPolicy::Group),
        ("fail", StartPolicy::Fail),
    ];
    let start = section.or("start", Settings::default().start, |e| e.choice(&start));
    let check = [("warn", RetentionCheck::Warn), ("refuse", RetentionCheck::Refuse)];
    let retention_check = section.or("retention_check", RetentionCheck::default(), |e| e.choice(&check));
    Some(KafkaInbox {
        topics: topics(entry)?,
        cluster: cluster?,
        properties,
        group: group?,
        start,
        retention_check,
    })
}

/// Which cluster it reads from, with or without a name.
fn cluster(
    section: &mut Section<'_, '_>,
    topics: &Entry<'_, '_>,
    clusters: &Clusters<'_, '_>,
) -> Option<Option<String>> {
    let entry = section.optional("kafka");
    if clusters.is_empty() {
        topics.report("an inbox that reads topics needs brokers", "add [kafka] with `brokers`");
        return None;
    }
    let name = match &entry {
        Some(entry) => Some(entry.filled_text()?),
        None => None,
    };
    let unknown = clusters.unknown(name.as_deref());
    if let Some((message, fix)) = unknown {
        entry.as_ref().unwrap_or(topics).report(message, fix);
        return None;
    }
    Some(name)
}

/// Its own properties, which have to make sense over those of its cluster.
fn own_properties(
    section: &mut Section<'_, '_>,
    cluster: Option<&Option<String>>,
    clusters: &mut Clusters<'_, '_>,
) -> BTreeMap<String, String> {
    let place = section.place();
    let own = section.or("properties", BTreeMap::new(), |entry| entry.into_section().map(properties));
    if let Some(cluster) = cluster {
        if own.is_empty() {
            clusters.note_use(cluster.as_deref());
        } else {
            report_incomplete(&place, &clusters.merged(cluster.as_deref(), &own));
        }
    }
    own
}

impl fmt::Debug for KafkaInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaInbox")
            .field("topics", &self.topics)
            .field("cluster", &self.cluster)
            .field("properties", &shown(&self.properties))
            .field("group", &self.group)
            .field("start", &self.start)
            .field("retention_check", &self.retention_check)
            .finish()
    }
}

fn topics(entry: Entry<'_, '_>) -> Option<Vec<String>> {
    if entry.is_empty_array() {
        entry.report("the list is empty", TOPICS_FIX);
        return None;
    }
    let mut topics = Vec::new();
    for item in entry.into_items("an array of topic names")? {
        let Some(topic) = item.text() else { continue };
        if topic.starts_with('^') {
            if let Err(reason) = (item.surroundings().check_topic_pattern)(&topic) {
                let fix = "write a regular expression, as in \"^orders[.].*\"";
                item.report(format!("this is no pattern of topics: {reason}"), fix);
                continue;
            }
        } else if check_topic(&topic).is_err() {
            item.report(
                "this is not a name of a Kafka topic",
                "use up to 249 letters, digits, `.`, `_` and `-`; a pattern begins with `^`",
            );
            continue;
        }
        if topics.contains(&topic) {
            item.report("this topic is listed twice", "remove one of them");
        } else {
            topics.push(topic);
        }
    }
    Some(topics)
}
