//! The model log: topics, partitions, what was taken out of them, and the group's offsets.

mod change;
mod group;
mod names;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oncebox_core::inbox::Identity;
use oncebox_core::message::{Headers, Record};
use oncebox_core::names::ConsumerName;
use oncebox_core::source::{LogId, StartError};
use oncebox_core::store::PositionKey;

pub(crate) use group::Assigned;
pub(crate) use source::ModelSource;

use names::Names;

use crate::plan::{Config, Place, Produce};
use crate::store::Spot;
use crate::world::Actor;

/// All topics, and what the broker knows of its groups.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) topics: Vec<Topic>,
    /// What the consumers and the topics are called.
    consumer_names: Names,
    topic_names: Names,
    consumers: usize,
    with_ids: bool,
    /// What the groups have committed.
    pub(crate) committed: BTreeMap<Spot, i64>,
    pub(crate) assigned: BTreeMap<Spot, Assigned>,
    /// Processes that are members of the groups.
    pub(crate) members: BTreeSet<usize>,
    rotation: usize,
    /// Why a partition stands still, as the source that holds it has reported.
    pub(crate) stops: BTreeMap<Spot, (Actor, Stop)>,
    /// An operator wants the partition to be opened anew.
    pub(crate) reopen: BTreeSet<Spot>,
    /// Records that retention has removed.
    pub(crate) removed: Vec<(Spot, Entry)>,
    /// Places that an operator gave up, or that lie before the beginning.
    pub(crate) forgiven: BTreeSet<(Spot, u32, i64)>,
    /// From this offset on everything is read again since that time.
    pub(crate) reread: Vec<(Spot, i64, i64)>,
    /// The highest position ever.
    pub(crate) reached: BTreeMap<Spot, i64>,
    /// Here operators have given something up, so that order means nothing any more.
    pub(crate) out_of_order: BTreeSet<Spot>,
    /// Which writing of the log the position was last begun with.
    pub(crate) begun: BTreeMap<Spot, u32>,
}

/// Why a partition stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It cannot begin.
    Start(StartError),
    /// It has halted.
    Halted(String),
}

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) exists: bool,
    /// How often it was created.
    pub(crate) creation: u32,
    pub(crate) partitions: Vec<Partition>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Partition {
    /// By offset; what is no message is `None`.
    pub(crate) records: Vec<Option<Entry>>,
    pub(crate) low: i64,
    /// How often the log was written anew.
    pub(crate) writing: u32,
}

/// A record in the log.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) record: Record,
    pub(crate) number: u32,
    pub(crate) writing: u32,
    pub(crate) appended_ms: i64,
    /// The id that a consumer finds in it.
    pub(crate) id: Option<String>,
}

impl Partition {
    /// One past the newest offset.
    pub(crate) fn end(&self) -> i64 {
        i64::try_from(self.records.len()).unwrap_or(i64::MAX)
    }

    pub(crate) fn at(&self, offset: i64) -> Option<&Entry> {
        self.records.get(usize::try_from(offset).ok()?)?.as_ref().filter(|_| offset >= self.low)
    }
}

impl Log {
    pub(crate) fn new(config: &Config) -> Self {
        let topic =
            || Topic { exists: true, creation: 0, partitions: vec![Partition::default(); config.partitions] };
        Self {
            // Where the source are queues, the names are theirs.
            topics: if config.prefetch.is_some() {
                Vec::new()
            } else {
                (0..config.topics).map(|_| topic()).collect()
            },
            consumer_names: Names::numbered('c', config.consumers),
            topic_names: Names::numbered('t', config.topics),
            consumers: config.consumers,
            with_ids: config.log_ids,
            committed: BTreeMap::new(),
            assigned: BTreeMap::new(),
            members: BTreeSet::new(),
            rotation: 0,
            stops: BTreeMap::new(),
            reopen: BTreeSet::new(),
            removed: Vec::new(),
            forgiven: BTreeSet::new(),
            reread: Vec::new(),
            reached: BTreeMap::new(),
            out_of_order: BTreeSet::new(),
            begun: BTreeMap::new(),
        }
    }

    pub(crate) fn spot(&mut self, key: &PositionKey) -> Spot {
        let place = self.place(&key.topic, key.partition);
        Spot { consumer: self.consumer_index(key.consumer.as_str()), place }
    }

    pub(crate) fn place(&mut self, topic: &str, partition: i32) -> Place {
        Place {
            topic: self.topic_names.index(topic),
            partition: usize::try_from(partition).unwrap_or_default(),
        }
    }

    pub(crate) fn consumer(&self, index: usize) -> String {
        self.consumer_names.name(index).to_owned()
    }

    pub(crate) fn consumer_index(&mut self, name: &str) -> usize {
        self.consumer_names.index(name)
    }

    pub(crate) fn topic_name(&self, topic: usize) -> Arc<str> {
        self.topic_names.name(topic).into()
    }

    /// The key of a position; the names of the model are always valid.
    pub(crate) fn key(&self, spot: Spot) -> Option<PositionKey> {
        Some(PositionKey {
            consumer: ConsumerName::new(self.consumer(spot.consumer)).ok()?,
            topic: self.topic_name(spot.place.topic),
            partition: i32::try_from(spot.place.partition).ok()?,
        })
    }

    /// The partition, unless its topic is none of this log.
    pub(crate) fn known_partition(&self, place: Place) -> Option<&Partition> {
        self.topics.get(place.topic)?.partitions.get(place.partition)
    }

    pub(crate) fn partition(&self, place: Place) -> &Partition {
        &self.topics[place.topic].partitions[place.partition]
    }

    pub(crate) fn partition_mut(&mut self, place: Place) -> &mut Partition {
        &mut self.topics[place.topic].partitions[place.partition]
    }

    /// All partitions of all consumers.
    pub(crate) fn spots(&self) -> Vec<Spot> {
        let mut spots = Vec::new();
        for consumer in 0..self.consumers {
            for (topic, known) in self.topics.iter().enumerate() {
                spots.extend(
                    (0..known.partitions.len())
                        .map(|partition| Spot { consumer, place: Place { topic, partition } }),
                );
            }
        }
        spots
    }

    /// What the broker says the identity of the log is.
    pub(crate) fn id(&self, topic: usize) -> LogId {
        if self.with_ids {
            LogId::new(format!("cluster/t{topic}-{}", self.topics[topic].creation))
        } else {
            LogId::new("cluster/")
        }
    }

    pub(crate) fn position_reached(&mut self, spot: Spot, next: Option<i64>) {
        if let Some(next) = next {
            let reached = self.reached.entry(spot).or_insert(next);
            *reached = (*reached).max(next);
        }
    }

    /// A producer's record is appended.
    pub(crate) fn append(&mut self, produce: &Produce, identity: &Identity, now_ms: i64) {
        if !self.topics[produce.place.topic].exists {
            return;
        }
        let log = self.id(produce.place.topic);
        let topic = self.topic_name(produce.place.topic);
        let partition = self.partition_mut(produce.place);
        let offset = partition.end();
        let mut headers = Headers::new();
        if produce.has_id {
            headers.push("id", Some(format!("m{}", produce.number).into()));
        }
        headers.push("writing", Some(partition.writing.to_string().into()));
        headers.push("appended", Some(now_ms.to_string().into()));
        let record = Record {
            key: produce.key.map(|key| format!("k{key}").into()),
            payload: Some(produce.number.to_string().into()),
            headers,
            timestamp_ms: Some(now_ms + produce.clock_off_ms),
            log: Some(log),
            ..Record::at(topic, i32::try_from(produce.place.partition).unwrap_or_default(), offset)
        };
        let id = identity.identify(record.clone()).ok().map(|message| message.id().as_str().to_owned());
        let number = produce.number;
        let entry = Entry { record, number, writing: partition.writing, appended_ms: now_ms, id };
        partition.records.push(Some(entry));
    }
}

/// The number that a record's payload carries.
pub(crate) fn number_of(record: &Record) -> u32 {
    let text = record.payload.as_deref().and_then(|payload| std::str::from_utf8(payload).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(u32::MAX)
}

/// A number in a header: which `writing` of its log a record belongs to, when it was `appended`.
pub(crate) fn header_of(record: &Record, name: &str) -> i64 {
    let text = record.headers.last(name).and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
