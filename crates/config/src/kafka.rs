//! `[kafka]`: the brokers.

use std::collections::BTreeMap;
use std::fmt;

use oncebox_core::secret::is_secret_name;

use super::reader::Section;
use super::surroundings::RefusedProperty;

/// `[kafka]`: where messages come from. Needed as soon as there is an `[[inbox]]`.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaConfig {
    /// `brokers`: a comma-separated list of `host:port`. Required.
    pub brokers: String,
    /// `[kafka.properties]`: librdkafka properties, passed through. What the Kafka client has to control itself is refused.
    pub properties: BTreeMap<String, String>,
}

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
        if entry.is_table() {
            entry.report(
                "without quotes, the dots of a property make it a table",
                "put the whole name in quotes, as in \"security.protocol\" = \"ssl\"",
            );
            continue;
        }
        let value = entry.scalar();
        let refused = entry.surroundings().refused_property;
        // Also if the value is wrong: all problems show at once.
        if let Some(RefusedProperty { why, instead }) = refused(&name, value.as_deref().unwrap_or_default()) {
            let fix = instead.map_or_else(|| "remove it".to_owned(), use_key);
            entry.report(format!("oncebox controls this property itself: {why}"), fix);
        } else if let Some(value) = value {
            properties.insert(name, value);
        }
    }
    properties
}

fn use_key(key: &str) -> String {
    let section = if key == "brokers" { "[kafka]" } else { "[[inbox]]" };
    format!("use `{key}` under {section}")
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
