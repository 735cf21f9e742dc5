//! `[kafka]`: the brokers.

use std::collections::BTreeMap;
use std::fmt;

use super::reader::Section;
use super::secret::is_secret_name;

/// `[kafka]`: where messages come from. Needed as soon as there is an `[[inbox]]`.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaConfig {
    /// `brokers`: a comma-separated list of `host:port`. Required.
    pub brokers: String,
    /// `[kafka.properties]`: librdkafka properties, passed through. What oncebox has to control itself is refused.
    pub properties: BTreeMap<String, String>,
}

/// Properties that would break a promise of oncebox, with what to do instead.
const CONTROLLED: [(&str, &str); 9] = [
    ("bootstrap.servers", "use `brokers` under [kafka]"),
    ("metadata.broker.list", "use `brokers` under [kafka]"),
    ("group.id", "use `group` or `consumer` under [[inbox]]"),
    ("auto.offset.reset", "use `start` under [[inbox]]"),
    ("enable.auto.commit", "remove it: offsets are committed after the database transaction"),
    ("auto.commit.enable", "remove it: offsets are committed after the database transaction"),
    ("auto.commit.interval.ms", "remove it: offsets are committed after the database transaction"),
    ("enable.auto.offset.store", "remove it: offsets are stored after the database transaction"),
    ("enable.partition.eof", "remove it: oncebox sets it as it needs it"),
];

pub(super) fn read(mut section: Section<'_, '_>) -> Option<KafkaConfig> {
    let fix = "write a comma-separated list such as \"localhost:9092\"";
    let brokers = section.required("brokers", "it is missing", fix).and_then(|entry| {
        let brokers = entry.filled_text()?;
        let brokers: Vec<_> = brokers.split(',').map(str::trim).collect();
        if brokers.iter().any(|broker| broker.is_empty()) {
            entry.report("there is an empty name in the list", fix);
            return None;
        }
        Some(brokers.join(","))
    });
    let properties = section.or("properties", BTreeMap::new(), |entry| entry.into_section().map(properties));
    section.finish();
    Some(KafkaConfig { brokers: brokers?, properties })
}

fn properties(section: Section<'_, '_>) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::new();
    for (name, entry) in section.into_entries() {
        if let Some((_, fix)) = CONTROLLED.iter().find(|(controlled, _)| *controlled == name) {
            entry.report("oncebox controls this property itself", *fix);
        } else if entry.is_table() {
            entry.report(
                "without quotes, the dots of a property make it a table",
                "put the whole name in quotes, as in \"security.protocol\" = \"ssl\"",
            );
        } else if let Some(value) = entry.scalar() {
            properties.insert(name, value);
        }
    }
    properties
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: BTreeMap<&str, &str> = self
            .properties
            .iter()
            .map(|(name, value)| (name.as_str(), if is_secret_name(name) { "***" } else { value.as_str() }))
            .collect();
        f.debug_struct("KafkaConfig").field("brokers", &self.brokers).field("properties", &shown).finish()
    }
}
