//! Positions: how far a consumer has come, and who may advance it.
//!
//! Two transactions that write the same document cannot both commit here, not even one after the other if they overlap. Lanes
//! of a partition do overlap, and so does what is written beside them. So a position has one document of its own and a few *lane
//! documents* beside it. A transaction writes any one of them that nobody has written since it began (`lanes.rs`); taking over
//! writes them all, so that no transaction of an older owner can commit after it. What a position says is all of its documents
//! folded into one (`fold.rs`).

mod attempts;
mod fold;
mod lanes;
mod operator;

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;
use oncebox_core::error::BoxError;
use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Advance, Cause, Duplicates, ErrorClass, Ownership, PositionKey, Positions, Progress, StoreError,
    StoreResult,
};

use crate::classify::{Context, WRITE_CONFLICT, code_of};
use crate::rerun::rerun;
use crate::store::MongoStore;
use crate::time::date;
use crate::tx::MongoTx;
use crate::txn::MongoTxn;
pub(crate) use fold::{Folded, fold_all, whole};
use lanes::Known;
pub(crate) use lanes::{Slot, Slots};

/// How long a look at one document may take.
const LOOK: Duration = Duration::from_secs(10);

pub(crate) const POSITIONS: &str = "oncebox_position";
pub(crate) const LANES: &str = "oncebox_position_lane";

impl Positions for MongoStore {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        let doing = "taking over a position";
        self.patiently(doing, rerun(self, || acquire_once(self, key, doing))).await
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        let doing = "writing down how far a partition is";
        self.patiently(doing, record_progress(self, owner, progress, doing)).await
    }

    async fn release(&self, owner: &Ownership) -> StoreResult<()> {
        let doing = "releasing a position";
        let released = rerun(self, || attempts::release_once(self, owner, doing));
        self.patiently(doing, released).await?;
        self.inner.slots.forget(owner);
        Ok(())
    }

    async fn record_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        let doing = "recording an attempt";
        self.patiently(doing, attempts::record_attempt(self, owner, offset, doing)).await
    }

    async fn withdraw_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        let doing = "withdrawing an attempt";
        self.patiently(doing, attempts::withdraw_attempt(self, owner, offset, doing)).await
    }

    async fn move_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> StoreResult<()> {
        self.patiently("moving a position", operator::move_position(self, key, next_offset, log)).await
    }

    async fn retire_positions(&self, consumer: &ConsumerName, topic: &str) -> StoreResult<u64> {
        self.patiently("retiring positions", operator::retire_positions(self, consumer, topic)).await
    }
}

/// Takes over: all documents of the position are folded into its own one, and get the new epoch.
async fn acquire_once(store: &MongoStore, key: &PositionKey, doing: &str) -> StoreResult<Ownership> {
    let mut txn = store.begin().await?;
    fold::hold_all(&mut txn, key).await.context(doing)?;
    let folded = fold::fold(&mut txn, key).await.context(doing)?;
    let before = folded.unwrap_or_else(|| Folded::new(key));
    let attempted = attempts::forget_settled(&mut txn, key, before.next_offset).await.context(doing)?;
    // `updated_at` and `caught_up_at` stay as they are: taking over is not progress.
    let after = Folded { epoch: before.epoch + 1, starts: before.starts + 1, retired_at: None, ..before };
    fold::write(&mut txn, key, &after).await.context(doing)?;
    txn.commit_own(doing).await?;
    let owner = Ownership {
        key: key.clone(),
        epoch: after.epoch,
        next_offset: after.next_offset,
        log: after.log.clone().map(LogId::new),
        mark: after.mark(),
        floor: after.floor,
        was_retired: before.retired_at.is_some(),
        commits: after.commits,
        starts: u32::try_from(after.starts).unwrap_or(u32::MAX),
        attempts_recorded: attempted,
        settled_to: after.settled_to,
        rewound_to: after.rewound_to,
    };
    store.inner.slots.begin(&owner, store.tick());
    Ok(owner)
}

/// Without messages there is no transaction: one document is changed at once, or nothing.
async fn record_progress(
    store: &MongoStore,
    owner: &Ownership,
    progress: Progress<'_>,
    doing: &str,
) -> StoreResult<()> {
    let positions = store.inner.messages.collection::<Document>(POSITIONS);
    let only_asks =
        Progress { at_least: progress.at_least, commits: progress.commits, ..Progress::default() };
    let found = if progress == only_asks {
        let own = positions.find_one(Known::of(store, owner, 0).filter(&progress));
        // A new primary may not know yet what the majority has.
        own.read_concern(ReadConcern::linearizable()).max_time(LOOK).await.context(doing)?
    } else {
        // The document of the position itself, so that people see there how far it is; also what lane documents say.
        let slot = Slot::take_first(store, owner).await;
        let next_offset = progress.next_offset.max(store.inner.slots.next_offset(owner));
        let change = changes(&Progress { next_offset, ..progress }, None, None);
        let found = positions.find_one_and_update(slot.filter(&progress), change).await.context(doing)?;
        if found.is_some() {
            slot.confirmed(0, next_offset);
        }
        found
    };
    found.map(|_| ()).ok_or_else(|| fenced(owner))
}

pub(crate) fn fenced(owner: &Ownership) -> StoreError {
    StoreError::fenced(owner.key.to_string())
}

/// Moves the position in the transaction that is about to commit. The transaction holds the document until it has ended.
pub(crate) async fn advance(
    store: &MongoStore,
    txn: &mut MongoTxn,
    advance: &Advance<'_>,
) -> StoreResult<()> {
    let doing = "moving the position";
    let Advance { owner, progress, applied, duplicates, finished_attempt } = advance;
    let known_next = store.inner.slots.next_offset(owner).max(owner.next_offset);
    let change = changes(progress, Some((*applied, *duplicates)), known_next);
    let seen = store.inner.slots.count_at(owner, txn.began);
    let slot = Slot::take(store, owner, txn.began).await;
    let (collection, this) = (slot.collection(), slot.filter(progress));
    txn.hold(slot);
    let tx: &mut MongoTx = txn;
    let documents = tx.database.collection::<Document>(collection);
    let moved = documents.update_one(this.clone(), change).session(&mut tx.session).await;
    match moved {
        Ok(done) if done.matched_count == 1 => match finished_attempt {
            Some(offset) => attempts::forget(tx, &owner.key, *offset).await.context_of_user(doing),
            None => Ok(()),
        },
        // In the snapshot it is not there, or not as far as it should be.
        Ok(_) => {
            let why = "a newer commit was in the way".into();
            Err(in_the_way(store, owner, seen, collection, this, why).await)
        }
        Err(error) if code_of(&error) == Some(WRITE_CONFLICT) => {
            Err(in_the_way(store, owner, seen, collection, this, error.into()).await)
        }
        Err(error) => Err(error).context_of_user(doing),
    }
}

/// Somebody has written the document since the transaction began: a new owner, or one of our own lanes when there were more of them
/// than documents. What is committed by now tells; and next time there are more documents.
async fn in_the_way(
    store: &MongoStore,
    owner: &Ownership,
    seen: usize,
    collection: &str,
    this: Document,
    error: BoxError,
) -> StoreError {
    let documents = store.aside(collection);
    let now = documents.find_one(this).read_concern(ReadConcern::linearizable()).max_time(LOOK).await;
    match now.context("looking for the owner of a position") {
        Ok(None) => fenced(owner),
        Ok(Some(_)) => match lanes::grow(store, owner, seen).await {
            Ok(()) => StoreError::new(ErrorClass::Transient, "moving the position", error),
            Err(other) => other,
        },
        Err(other) => other,
    }
}

/// How a document changes when a partition is this far. Offsets and the time up to which the partition is caught up never
/// go back, and that time is never later than now. Without counts there were no messages: then nothing says that the owner
/// makes progress, or that the log lives. And only a commit that moves the next offset is progress: a lane that runs ahead
/// says nothing about the message that holds it.
///
/// `known_next` is the next offset that was confirmed so far, in whichever document.
fn changes(
    progress: &Progress<'_>,
    counts: Option<(u64, Duplicates)>,
    known_next: Option<i64>,
) -> Vec<Document> {
    let mut set = doc! {};
    if let Some((applied, duplicates)) = counts {
        if progress.next_offset > known_next {
            set.insert("starts", 0_i64);
            set.insert("moved", true);
        }
        let counted = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        set.insert("commits", doc! { "$add": ["$commits", 1_i64] });
        set.insert("applied", doc! { "$add": ["$applied", counted(applied)] });
        set.insert("duplicates", doc! { "$add": ["$duplicates", counted(duplicates.total())] });
        for (field, cause) in CAUSES {
            let count = duplicates.of(cause);
            if count > 0 {
                // A document that an older oncebox has made has no such field.
                set.insert(
                    field,
                    doc! { "$add": [{ "$ifNull": [format!("${field}"), 0_i64] }, counted(count)] },
                );
            }
        }
        set.insert("retired_at", Bson::Null);
        set.insert("updated_at", "$$NOW");
    }
    if let Some(next) = progress.next_offset {
        set.insert("next_offset", doc! { "$max": ["$next_offset", next] });
    }
    for (field, offset) in [("settled_to", progress.settled_to), ("rewound_to", progress.rewound_to)] {
        if let Some(offset) = offset {
            set.insert(field, doc! { "$max": [format!("${field}"), offset] });
        }
    }
    if let Some(log) = progress.log {
        set.insert("log", doc! { "$literal": log.as_str() });
    }
    if let Some(mark) = progress.mark {
        let older = doc! { "$lt": [mark.offset, { "$ifNull": ["$mark_offset", i64::MIN] }] };
        set.insert("mark_digest", doc! { "$cond": [older, "$mark_digest", mark.digest] });
        set.insert("mark_offset", doc! { "$max": ["$mark_offset", mark.offset] });
    }
    if let Some(ms) = progress.caught_up_ms {
        let at = doc! { "$min": [date(ms), "$$NOW"] };
        set.insert("caught_up_at", doc! { "$max": ["$caught_up_at", at] });
    }
    vec![doc! { "$set": set }]
}

/// Where duplicates of a known cause are counted.
const CAUSES: [(&str, Cause); 3] = [
    ("redelivered", Cause::Redelivered),
    ("rewound", Cause::Rewound),
    ("published_twice", Cause::PublishedTwice),
];

/// The key of the position's own document.
pub(crate) fn id(key: &PositionKey) -> Document {
    doc! { "consumer": key.consumer.as_str(), "topic": &*key.topic, "partition": key.partition }
}
