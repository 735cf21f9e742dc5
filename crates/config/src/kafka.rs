//! `[kafka]` and `[kafka.NAME]`: the clusters.

use std::collections::BTreeMap;
use std::fmt;

use oncebox_core::secret::is_secret_name;

use super::reader::{Place, Section};
use super::surroundings::RefusedProperty;

/// `[kafka]`, or `[kafka.NAME]`: a cluster that messages come from and events go to.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaConfig {
    /// `brokers`: a comma-separated list of `host:port`. Required.
    pub brokers: String,
    /// `[kafka.properties]`: librdkafka properties, passed through. What the Kafka client has to control itself is refused.
    pub properties: BTreeMap<String, String>,
}

/// All clusters of a file: the one of `[kafka]` has no name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KafkaClusters(BTreeMap<Option<String>, KafkaConfig>);

impl KafkaClusters {
    /// The cluster of this name; without a name, the one of `[kafka]`.
    #[must_use]
    pub fn get(&self, name: Option<&str>) -> Option<&KafkaConfig> {
        self.0.get(&name.map(str::to_owned))
    }

    /// Each with its name, the one without first.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &KafkaConfig)> {
        self.0.iter().map(|(name, cluster)| (name.as_deref(), cluster))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The name of a cluster as it stands in the file.
#[must_use]
pub fn cluster_heading(name: Option<&str>) -> String {
    name.map_or_else(|| "[kafka]".to_owned(), |name| format!("[kafka.{name}]"))
}

/// The clusters while the rest of the file is read.
pub(super) struct Clusters<'c, 'a> {
    /// Also those that are wrong: whoever names one is not wrong too.
    named: BTreeMap<Option<String>, (Option<KafkaConfig>, Place<'c, 'a>)>,
    /// Those that somebody uses as they are.
    used: Vec<Option<String>>,
}

impl<'c, 'a> Clusters<'c, 'a> {
    pub(super) fn none() -> Self {
        Self { named: BTreeMap::new(), used: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// What is wrong with naming this cluster, or none, and what to do; `None` if it is there.
    pub(super) fn unknown(&self, name: Option<&str>) -> Option<(String, String)> {
        if self.named.contains_key(&name.map(str::to_owned)) {
            return None;
        }
        let known: Vec<String> = self.named.keys().flatten().map(|name| format!("\"{name}\"")).collect();
        let known = known.join(", ");
        Some(match name {
            Some(name) if known.is_empty() => (
                format!("there is no cluster \"{name}\", and none with a name"),
                format!("add [kafka.{name}] with `brokers`, or remove the key to use [kafka]"),
            ),
            Some(name) => (
                format!("there is no cluster \"{name}\""),
                format!("use one of {known}, or add [kafka.{name}]"),
            ),
            None => (
                "there is no [kafka] with `brokers`, so the cluster has to be named".to_owned(),
                format!("write `kafka = NAME`, with one of {known}"),
            ),
        })
    }

    /// The properties of an inbox over those of its cluster.
    pub(super) fn merged(
        &self,
        name: Option<&str>,
        over: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let cluster = self.named.get(&name.map(str::to_owned)).and_then(|(cluster, _)| cluster.as_ref());
        let mut merged = cluster.map(|cluster| cluster.properties.clone()).unwrap_or_default();
        merged.extend(over.iter().map(|(name, value)| (name.clone(), value.clone())));
        merged
    }

    /// Somebody uses this one as it is, without properties of its own.
    pub(super) fn note_use(&mut self, name: Option<&str>) {
        self.used.push(name.map(str::to_owned));
    }

    /// Checks what belongs together in those that are used as they are. One that nobody uses is taken for such.
    pub(super) fn finish(self, others: &[Option<String>]) -> KafkaClusters {
        let Self { named, used } = self;
        for (name, (cluster, place)) in &named {
            let alone = used.contains(name) || !others.contains(name);
            if let Some(cluster) = cluster.as_ref().filter(|_| alone) {
                report_incomplete(place, &cluster.properties);
            }
        }
        let read = named.into_iter().filter_map(|(name, (cluster, _))| Some((name, cluster?)));
        KafkaClusters(read.collect())
    }
}

const BROKERS_FIX: &str = "write a comma-separated list such as \"localhost:9092\"";

pub(super) fn read<'c, 'a>(mut section: Section<'c, 'a>) -> Clusters<'c, 'a> {
    let mut clusters = Clusters::none();
    let more = section.take_tables(&["properties"]);
    // A file whose clusters all have names has nothing to say here.
    let is_named_only = !more.is_empty() && !section.has("brokers") && !section.has("properties");
    if is_named_only {
        section.know(&["brokers", "properties"]);
        section.finish();
    } else {
        let place = section.place();
        clusters.named.insert(None, (read_one(section), place));
    }
    for (name, entry) in more {
        let good =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if !good {
            entry.report("this is no name of a cluster", "use letters, digits, `_` and `-`");
        }
        let Some(section) = entry.into_section() else { continue };
        let place = section.place();
        clusters.named.insert(Some(name), (read_one(section), place));
    }
    clusters
}

fn read_one(mut section: Section<'_, '_>) -> Option<KafkaConfig> {
    let brokers = section.required("brokers", "it is missing", BROKERS_FIX).and_then(|entry| {
        let brokers = entry.filled_text()?;
        let brokers: Vec<_> = brokers.split(',').map(str::trim).collect();
        if brokers.iter().any(|broker| broker.is_empty()) {
            entry.report("there is an empty name in the list", BROKERS_FIX);
            return None;
        }
        Some(brokers.join(","))
    });
    let properties = section.or("properties", BTreeMap::new(), |entry| entry.into_section().map(properties));
    section.finish();
    Some(KafkaConfig { brokers: brokers?, properties })
}

/// Properties of librdkafka, of a cluster or of an inbox.
pub(super) fn properties(section: Section<'_, '_>) -> BTreeMap<String, String> {
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
        if let Some(RefusedProperty { why, fix, instead }) =
            refused(&name, value.as_deref().unwrap_or_default())
        {
            entry.report(why, instead.map_or(fix, use_key));
        } else if let Some(value) = value {
            properties.insert(name, value);
        }
    }
    properties
}

/// Reports what is missing in a table of properties, or does not go together.
pub(super) fn report_incomplete(place: &Place<'_, '_>, properties: &BTreeMap<String, String>) {
    let check = place.surroundings().refused_together;
    if let Some((name, RefusedProperty { why, fix, .. })) = check(properties) {
        place.report_below(&format!("properties.\"{name}\""), why, fix);
    }
}

fn use_key(key: &str) -> String {
    let section = if key == "brokers" { "[kafka]" } else { "[[inbox]]" };
    format!("use `{key}` under {section}")
}

/// The properties without the values of secrets.
pub(super) fn shown(properties: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    properties
        .iter()
        .map(|(name, value)| (name.as_str(), if is_secret_name(name) { "***" } else { value.as_str() }))
        .collect()
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("properties", &shown(&self.properties))
            .finish()
    }
}
