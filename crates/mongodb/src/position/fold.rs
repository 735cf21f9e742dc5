//! What a position says: all of its documents folded into one.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::error::Result;
use oncebox_core::source::LogMark;
use oncebox_core::store::{PositionKey, StoreResult};

use super::lanes::{LANE_DOCUMENTS, lane_id};
use super::{LANES, POSITIONS, id};
use crate::classify::Context;
use crate::store::MongoStore;
use crate::tx::MongoTx;

/// A position.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folded {
    pub(crate) consumer: String,
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) next_offset: Option<i64>,
    pub(crate) epoch: i64,
    pub(crate) starts: i64,
    pub(crate) applied: i64,
    pub(crate) duplicates: i64,
    pub(crate) redelivered: i64,
    pub(crate) rewound: i64,
    pub(crate) published_twice: i64,
    pub(crate) commits: i64,
    pub(crate) updated_at: Option<DateTime>,
    pub(crate) log: Option<String>,
    pub(crate) mark_offset: Option<i64>,
    pub(crate) mark_digest: Option<i64>,
    pub(crate) floor: Option<i64>,
    pub(crate) caught_up_at: Option<DateTime>,
    pub(crate) retired_at: Option<DateTime>,
    pub(crate) settled_to: Option<i64>,
    pub(crate) rewound_to: Option<i64>,
}

impl Folded {
    /// A partition that nobody has ever owned.
    pub(super) fn new(key: &PositionKey) -> Self {
        Self {
            consumer: key.consumer.as_str().to_owned(),
            topic: key.topic.to_string(),
            partition: key.partition,
            updated_at: Some(DateTime::now()),
            ..Self::default()
        }
    }

    pub(super) fn mark(&self) -> Option<LogMark> {
        self.mark_offset.zip(self.mark_digest).map(|(offset, digest)| LogMark { offset, digest })
    }

    fn read(document: &Document) -> Self {
        let text = |name: &str| document.get_str(name).ok().map(str::to_owned);
        let number = |name: &str| whole(document.get(name));
        let at = |name: &str| document.get_datetime(name).ok().copied();
        Self {
            consumer: text("consumer").unwrap_or_default(),
            topic: text("topic").unwrap_or_default(),
            partition: number("partition").and_then(|n| i32::try_from(n).ok()).unwrap_or_default(),
            next_offset: number("next_offset"),
            epoch: number("epoch").unwrap_or_default(),
            starts: number("starts").unwrap_or_default(),
            applied: number("applied").unwrap_or_default(),
            duplicates: number("duplicates").unwrap_or_default(),
            redelivered: number("redelivered").unwrap_or_default(),
            rewound: number("rewound").unwrap_or_default(),
            published_twice: number("published_twice").unwrap_or_default(),
            commits: number("commits").unwrap_or_default(),
            updated_at: at("updated_at"),
            log: text("log"),
            mark_offset: number("mark_offset"),
            mark_digest: number("mark_digest"),
            floor: number("floor"),
            caught_up_at: at("caught_up_at"),
            retired_at: at("retired_at"),
            settled_to: number("settled_to"),
            rewound_to: number("rewound_to"),
        }
    }

    /// Adds what one lane document says. Only those of the same owner count; all are made anew when the owner changes.
    fn add(&mut self, lane: &Document) {
        let other = Self::read(lane);
        if other.epoch != self.epoch {
            return;
        }
        if lane.get_bool("moved").unwrap_or(false) {
            self.starts = 0;
        }
        if other.log.is_some() && other.next_offset >= self.next_offset {
            self.log = other.log;
        }
        if other.mark_offset > self.mark_offset {
            (self.mark_offset, self.mark_digest) = (other.mark_offset, other.mark_digest);
        }
        // A commit after it was retired: the log lives.
        if other.commits > 0 && other.updated_at > self.retired_at {
            self.retired_at = None;
        }
        self.next_offset = self.next_offset.max(other.next_offset);
        self.caught_up_at = self.caught_up_at.max(other.caught_up_at);
        self.updated_at = self.updated_at.max(other.updated_at);
        self.applied += other.applied;
        self.duplicates += other.duplicates;
        self.redelivered += other.redelivered;
        self.rewound += other.rewound;
        self.published_twice += other.published_twice;
        self.settled_to = self.settled_to.max(other.settled_to);
        self.rewound_to = self.rewound_to.max(other.rewound_to);
        self.commits += other.commits;
    }
}

/// Counters are written as 64 bits; people who mend one in a shell may leave another kind of number.
pub(crate) fn whole(value: Option<&Bson>) -> Option<i64> {
    match value? {
        Bson::Int64(n) => Some(*n),
        Bson::Int32(n) => Some(i64::from(*n)),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole, and within the range of doubles that are"
        )]
        Bson::Double(n) if n.fract() == 0.0 && n.abs() < 9e15 => Some(*n as i64),
        _ => None,
    }
}

/// The position as this transaction sees it; `None` if there is none.
pub(super) async fn fold(tx: &mut MongoTx, key: &PositionKey) -> Result<Option<Folded>> {
    let own = tx.database.collection::<Document>(POSITIONS);
    let Some(own) = own.find_one(doc! { "_id": id(key) }).session(&mut tx.session).await? else {
        return Ok(None);
    };
    let mut folded = Folded::read(&own);
    let lanes = tx.database.collection::<Document>(LANES);
    let mut found = lanes.find(lanes_of(key)).session(&mut tx.session).await?;
    let mut lanes = found.stream(&mut tx.session);
    while let Some(lane) = lanes.try_next().await? {
        folded.add(&lane);
    }
    Ok(Some(folded))
}

/// Writes all of it into the position's own document, and empties the lane documents. Each is written, so that whoever
/// has one of them in an open transaction cannot commit.
pub(super) async fn write(tx: &mut MongoTx, key: &PositionKey, folded: &Folded) -> Result<()> {
    let own = doc! {
        "_id": id(key),
        "consumer": &folded.consumer,
        "topic": &folded.topic,
        "partition": folded.partition,
        "next_offset": folded.next_offset,
        "epoch": folded.epoch,
        "starts": folded.starts,
        "applied": folded.applied,
        "duplicates": folded.duplicates,
        "redelivered": folded.redelivered,
        "rewound": folded.rewound,
        "published_twice": folded.published_twice,
        "commits": folded.commits,
        "updated_at": folded.updated_at,
        "log": &folded.log,
        "mark_offset": folded.mark_offset,
        "mark_digest": folded.mark_digest,
        "floor": folded.floor,
        "caught_up_at": folded.caught_up_at,
        "retired_at": folded.retired_at,
        "settled_to": folded.settled_to,
        "rewound_to": folded.rewound_to,
    };
    let positions = tx.database.collection::<Document>(POSITIONS);
    positions.replace_one(doc! { "_id": id(key) }, own).upsert(true).session(&mut tx.session).await?;
    let lanes = tx.database.collection::<Document>(LANES);
    lanes.delete_many(lanes_of(key)).session(&mut tx.session).await?;
    let empty = (1..=LANE_DOCUMENTS).map(|at| empty_lane(key, at, folded.epoch));
    lanes.insert_many(empty).session(&mut tx.session).await?;
    Ok(())
}

/// A lane document that nobody has used.
pub(super) fn empty_lane(key: &PositionKey, at: usize, epoch: i64) -> Document {
    doc! {
        "_id": lane_id(key, at), "epoch": epoch, "next_offset": Bson::Null, "moved": false,
        "applied": 0_i64, "duplicates": 0_i64, "commits": 0_i64,
    }
}

/// Writes all documents of a position before they are read: whoever commits into one of them from now on is in the way, and
/// not we in theirs.
pub(super) async fn hold_all(tx: &mut MongoTx, key: &PositionKey) -> Result<()> {
    let held = doc! { "$inc": { "held": 1_i64 } };
    let positions = tx.database.collection::<Document>(POSITIONS);
    positions.update_one(doc! { "_id": id(key) }, held.clone()).session(&mut tx.session).await?;
    let lanes = tx.database.collection::<Document>(LANES);
    lanes.update_many(lanes_of(key), held).session(&mut tx.session).await?;
    Ok(())
}

/// All lane documents of a position, in the order of their keys.
fn lanes_of(key: &PositionKey) -> Document {
    let mut last = id(key);
    last.insert("lane", i32::MAX);
    doc! { "_id": { "$gt": id(key), "$lte": last } }
}

/// All positions, or those of one consumer, ordered by consumer, topic and partition.
pub(crate) async fn fold_all(
    store: &MongoStore,
    consumer: Option<&str>,
    doing: &str,
) -> StoreResult<Vec<Folded>> {
    let own = consumer.map_or_else(Document::new, |consumer| doc! { "consumer": consumer });
    let of_lanes = consumer.map_or_else(Document::new, |consumer| doc! { "_id.consumer": consumer });
    let used = doc! { "commits": { "$gt": 0 } };
    // Lanes first: what is folded into the position meanwhile is then not counted twice, because its epoch is another one.
    let lanes = store.aside(LANES).find(doc! { "$and": [of_lanes, used] }).await.context(doing)?;
    let lanes: Vec<Document> = lanes.try_collect().await.context(doing)?;
    let sorted = doc! { "consumer": 1, "topic": 1, "partition": 1 };
    let positions = store.aside(POSITIONS).find(own).sort(sorted).await.context(doing)?;
    let positions: Vec<Document> = positions.try_collect().await.context(doing)?;
    let mut of: HashMap<String, Vec<&Document>> = HashMap::new();
    for lane in &lanes {
        let Ok(id) = lane.get_document("_id") else { continue };
        of.entry(name(id)).or_default().push(lane);
    }
    Ok(positions
        .iter()
        .map(|position| {
            let mut folded = Folded::read(position);
            let lanes = position.get_document("_id").ok().and_then(|id| of.get(&name(id)));
            lanes.into_iter().flatten().for_each(|lane| folded.add(lane));
            folded
        })
        .collect())
}

/// Something to compare positions by: their names hold no line breaks.
fn name(id: &Document) -> String {
    let text = |name| id.get_str(name).unwrap_or_default();
    format!("{}\n{}\n{}", text("consumer"), text("topic"), whole(id.get("partition")).unwrap_or_default())
}
