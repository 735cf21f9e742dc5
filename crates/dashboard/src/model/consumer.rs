//! One consumer with its partitions.

use oncebox_core::store::PositionStatus;
use schemars::JsonSchema;
use serde::Serialize;

use super::Time;
use super::overview::{Consumer, names, troubled};
use crate::backend::{Look, Place};
use crate::history::History;

/// So many partitions are shown, those that stand still first.
const SHOWN_PARTITIONS: usize = 500;

/// A consumer with its partitions.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ConsumerDetail {
    pub(crate) at: Time,
    #[serde(flatten)]
    pub(crate) consumer: Consumer,
    /// Whether its position can be moved.
    pub(crate) has_offsets: bool,
    pub(crate) partition_list: Vec<Partition>,
    /// How many partitions are not in the list.
    pub(crate) partitions_left_out: usize,
    /// What stands still or fails, and why.
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) notes: Vec<String>,
}

/// A partition, or a queue.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Partition {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// Who reads it, as far as that is known.
    pub(crate) owner: Option<String>,
    /// How often it changed hands.
    pub(crate) epoch: i64,
    pub(crate) next_offset: Option<i64>,
    pub(crate) lag: Option<u64>,
    pub(crate) oldest_unapplied_seconds: Option<f64>,
    pub(crate) last_commit: Time,
    pub(crate) caught_up_at: Option<Time>,
    /// Whether it is the one that keeps old receipts from being removed.
    pub(crate) holds_horizon: bool,
    /// Why it stands still, if it does.
    pub(crate) stopped: Option<String>,
    pub(crate) retired: bool,
    pub(crate) applied: u64,
    pub(crate) duplicates_suppressed: u64,
}

/// Something that stands still or fails.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Trouble {
    /// Where.
    pub(crate) place: String,
    pub(crate) why: String,
}

impl ConsumerDetail {
    /// `None` if nobody knows it.
    pub(crate) fn of(look: &Look, history: &History, name: &str) -> Option<Self> {
        names(look).iter().find(|known| *known == name)?;
        let consumer = Consumer::of(look, history, name);
        let troubles: Vec<Trouble> = troubled(look, name)
            .into_iter()
            .map(|one| {
                let mut why: Vec<&str> = one.error.as_deref().into_iter().collect();
                why.extend(one.problems.iter().map(String::as_str));
                let why = if why.is_empty() { "no success for a while".to_owned() } else { why.join("; ") };
                let place = if one.detail.is_empty() { one.name.clone() } else { one.detail.clone() };
                Trouble { place, why }
            })
            .collect();
        let positions = look.status.positions.iter().filter(|p| p.consumer == name);
        let holder = holder(look, name);
        let mut partitions: Vec<Partition> =
            positions.map(|position| Partition::of(look, position, holder, &troubles)).collect();
        partitions.sort_by_key(|partition| partition.stopped.is_none());
        let left_out = partitions.len().saturating_sub(SHOWN_PARTITIONS);
        partitions.truncate(SHOWN_PARTITIONS);
        Some(Self {
            at: Time(look.at_ms),
            has_offsets: look.configured.iter().any(|one| one.consumer == name && one.has_offsets),
            consumer,
            partition_list: partitions,
            partitions_left_out: left_out,
            troubles,
            notes: look.notes.clone(),
        })
    }
}

/// The position that holds back the retention of a consumer: the one that was caught up last so long ago, or never.
pub(crate) fn holder<'a>(look: &'a Look, consumer: &str) -> Option<&'a PositionStatus> {
    let active = look.status.positions.iter().filter(|p| p.consumer == consumer && !p.retired);
    active.min_by_key(|p| p.caught_up_ms)
}

impl Partition {
    fn of(
        look: &Look,
        position: &PositionStatus,
        holder: Option<&PositionStatus>,
        troubles: &[Trouble],
    ) -> Self {
        let PositionStatus { consumer, topic, partition, .. } = position;
        let place = Place { consumer: consumer.clone(), topic: topic.clone(), partition: *partition };
        let seen = look.places.get(&place).cloned().unwrap_or_default();
        let is_holder = |holder: &PositionStatus| holder.topic == *topic && holder.partition == *partition;
        let here = [format!("{topic}/{partition}"), topic.clone()];
        let stopped = troubles.iter().find(|trouble| {
            // A lane of it is written behind it.
            let place = trouble.place.rsplit_once('#').map_or(trouble.place.as_str(), |(place, _)| place);
            here.iter().any(|here| here == place)
        });
        Self {
            topic: topic.clone(),
            partition: *partition,
            owner: seen.owner,
            epoch: position.epoch,
            next_offset: position.next_offset,
            lag: seen.lag,
            oldest_unapplied_seconds: seen.age.map(|age| age.as_secs_f64()),
            last_commit: Time(position.updated_at_ms),
            caught_up_at: position.caught_up_ms.map(Time),
            holds_horizon: holder.is_some_and(is_holder),
            stopped: stopped.map(|trouble| trouble.why.clone()),
            retired: position.retired,
            applied: position.applied,
            duplicates_suppressed: position.duplicates.total(),
        }
    }
}
