//! How long receipts are kept, and whether that covers the topics.

use schemars::JsonSchema;
use serde::Serialize;

use super::consumer::holder;
use super::overview::names;
use super::{Level, Time};
use crate::backend::{Look, TopicKeeps};
use crate::text::duration;

/// The retention of every consumer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct RetentionList {
    pub(crate) at: Time,
    /// How many receipts there are, as the database estimates it.
    pub(crate) receipts_estimate: u64,
    pub(crate) consumers: Vec<Retention>,
}

/// The retention of one consumer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Retention {
    pub(crate) consumer: String,
    /// How long its receipts are kept; nothing if the configuration does not know it, and then none of them is removed.
    pub(crate) keep_seconds: Option<u64>,
    /// Receipts older than this may be removed.
    pub(crate) horizon: Option<Time>,
    /// Receipts older than this are gone.
    pub(crate) purged_before: Option<Time>,
    /// The partition that holds the horizon: it was caught up last so long ago, or never.
    pub(crate) held_by: Option<HeldBy>,
    pub(crate) topics: Vec<Topic>,
}

/// The partition that holds a horizon.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct HeldBy {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// Nothing: it was never caught up, so that no receipt goes.
    pub(crate) caught_up_at: Option<Time>,
}

/// How long a topic keeps messages, against how long their receipts are kept.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Topic {
    pub(crate) topic: String,
    pub(crate) level: Level,
    pub(crate) said: String,
}

impl RetentionList {
    pub(crate) fn of(look: &Look) -> Self {
        let consumers = names(look).into_iter().map(|name| Retention::of(look, name)).collect();
        Self { at: Time(look.at_ms), receipts_estimate: look.status.receipts_estimate, consumers }
    }
}

impl Retention {
    fn of(look: &Look, consumer: String) -> Self {
        let configured = look.configured.iter().find(|one| one.consumer == consumer);
        let stored = look.status.consumers.iter().find(|one| one.consumer == consumer);
        let held_by = holder(look, &consumer);
        let keep_ms = configured.map(|one| i64::try_from(one.keep.as_millis()).unwrap_or(i64::MAX));
        // Without a position somebody claims in a loop of his own: then it is counted from now.
        let caught_up = held_by.map_or(Some(look.at_ms), |position| position.caught_up_ms);
        let horizon = keep_ms.zip(caught_up).map(|(keep, until)| Time(until.saturating_sub(keep)));
        let topics = configured.map(|one| {
            let topic = |(topic, keeps): &(String, TopicKeeps)| {
                let (level, said) = judged(*keeps, one.keep);
                Topic { topic: topic.clone(), level, said }
            };
            one.topics.iter().map(topic).collect()
        });
        Self {
            keep_seconds: configured.map(|one| one.keep.as_secs()),
            horizon,
            purged_before: stored.and_then(|one| one.purged_before_ms).map(Time),
            held_by: held_by.map(|position| HeldBy {
                topic: position.topic.clone(),
                partition: position.partition,
                caught_up_at: position.caught_up_ms.map(Time),
            }),
            topics: topics.unwrap_or_default(),
            consumer,
        }
    }
}

/// Whether a message can come back after its receipt is gone.
fn judged(keeps: TopicKeeps, receipts: std::time::Duration) -> (Level, String) {
    match keeps {
        TopicKeeps::For(kept) if kept <= receipts => {
            (Level::Ok, format!("keeps messages for {}: covered", duration(kept)))
        }
        TopicKeeps::For(kept) => (
            Level::Look,
            format!(
                "keeps messages for {}, longer than their receipts: a rewind further back applies messages again. Raise \
                 inbox.retention, or set stale = \"park\"",
                duration(kept)
            ),
        ),
        TopicKeeps::Ever => (
            Level::Look,
            "keeps messages for ever: a rewind further back than the receipts applies messages again. Set stale = \"park\""
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::Configured;
    use crate::history::tests::position;

    #[test]
    fn the_slowest_partition_holds_the_horizon() {
        let mut look = Look { at_ms: 100_000, ..Look::default() };
        look.configured = vec![Configured {
            consumer: "stock".to_owned(),
            reads: "orders".to_owned(),
            has_offsets: true,
            holds_keys: false,
            keep: Duration::from_secs(10),
            topics: vec![("orders".to_owned(), TopicKeeps::For(Duration::from_secs(20)))],
        }];
        let horizon = |look: &Look| RetentionList::of(look).consumers[0].horizon.map(|time| time.0);
        assert_eq!(horizon(&look), Some(90_000), "without a position");
        look.status.positions = vec![position("stock", 0, 0, 0), position("stock", 1, 0, 0)];
        look.status.positions[0].caught_up_ms = Some(60_000);
        look.status.positions[1].caught_up_ms = Some(50_000);
        assert_eq!(horizon(&look), Some(40_000));
        let seen = RetentionList::of(&look);
        assert_eq!(seen.consumers[0].held_by.as_ref().map(|held| held.partition), Some(1));
        assert_eq!(seen.consumers[0].topics[0].level, Level::Look);
        look.status.positions[0].caught_up_ms = None;
        assert_eq!(horizon(&look), None, "never caught up: nothing goes");
    }
}
