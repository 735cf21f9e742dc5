//! Which document of a position a transaction may write.
//!
//! The process that owns a position is the only one that writes its documents, until another takes over. So it can know
//! which of them nobody has written since a transaction began. It also knows what it was told to be committed in each of them:
//! a database that knows less has failed over to an older state, and is not written on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use oncebox_core::store::{Ownership, PositionKey, Progress, StoreResult};

use super::{LANES, POSITIONS, attempts, fenced, fold, id};
use crate::classify::{Context, DUPLICATE_KEY, code_of};
use crate::rerun::rerun;
use crate::store::MongoStore;
use crate::tx::MongoTx;

/// Lane documents beside the position's own when it is taken over. When they are too few, there are twice as many, up to the
/// second number; each time one batch is run again for it.
pub(super) const LANE_DOCUMENTS: usize = 7;
const MAX_DOCUMENTS: usize = 64;

/// How long to wait for a document that is free, before one is taken that is not.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// The documents of all positions that this process owns.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    positions: Mutex<HashMap<PositionKey, Documents>>,
}

#[derive(Debug)]
struct Documents {
    epoch: i64,
    each: Vec<State>,
}

/// What is known about one document.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Since when it is there, in the order of this process.
    since: u64,
    busy: bool,
    /// When it was written last, in the order of this process.
    written: u64,
    /// What was confirmed of it.
    commits: i64,
    next_offset: Option<i64>,
}

impl State {
    fn new(now: u64) -> Self {
        Self { since: now, written: now, ..Self::default() }
    }
}

/// What the owner was told about one document.
#[derive(Debug)]
pub(super) struct Known {
    owner: Ownership,
    at: usize,
    /// What the document must know already.
    this: State,
    /// What all documents together were told; an owner that knows more than that knows it of this one.
    all_commits: i64,
    all_next: Option<i64>,
}

/// A document of a position that one transaction writes. It is free again when this is dropped, which must be after the
/// transaction has ended, however it did.
#[derive(Debug)]
pub(crate) struct Slot {
    store: MongoStore,
    known: Known,
    /// Whether it was free. If not, somebody else frees it.
    taken: bool,
    /// What is confirmed of it by this transaction.
    commits: i64,
    next_offset: Option<i64>,
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, HashMap<PositionKey, Documents>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A position that was just taken over: everything is in its own document.
    pub(super) fn begin(&self, owner: &Ownership, now: u64) {
        let mut each = vec![State::new(now); 1 + LANE_DOCUMENTS];
        if let Some(own) = each.first_mut() {
            (own.commits, own.next_offset) = (owner.commits, owner.next_offset);
        }
        let mut positions = self.lock();
        // Two that took it over at the same time may come here in another order.
        if positions.get(&owner.key).is_none_or(|documents| documents.epoch < owner.epoch) {
            positions.insert(owner.key.clone(), Documents { epoch: owner.epoch, each });
        }
    }

    /// Forgets a position that was given back.
    pub(super) fn forget(&self, owner: &Ownership) {
        let mut positions = self.lock();
        if positions.get(&owner.key).is_some_and(|documents| documents.epoch == owner.epoch) {
            positions.remove(&owner.key);
        }
    }

    /// The highest next offset that was confirmed for this owner.
    pub(super) fn next_offset(&self, owner: &Ownership) -> Option<i64> {
        let positions = self.lock();
        let documents = positions.get(&owner.key).filter(|documents| documents.epoch == owner.epoch)?;
        documents.each.iter().filter_map(|state| state.next_offset).max()
    }

    fn end(&self, slot: &Slot, written: u64) {
        let mut positions = self.lock();
        let owner = &slot.known.owner;
        let documents = positions.get_mut(&owner.key).filter(|found| found.epoch == owner.epoch);
        if let Some(state) = documents.and_then(|documents| documents.each.get_mut(slot.known.at)) {
            state.busy &= !slot.taken;
            state.written = written;
            state.commits += slot.commits;
            state.next_offset = state.next_offset.max(slot.next_offset);
        }
    }

    /// Marks a document as busy that fits: of several the one that was written last, so that those that only an older
    /// transaction could still use are left to it. `None` if there is none now.
    fn choose(&self, owner: &Ownership, fit: impl Fn(usize, &State) -> bool) -> Option<usize> {
        let mut positions = self.lock();
        // An owner that this store has not made, or one that is long replaced: the filter decides.
        let Some(documents) = positions.get_mut(&owner.key).filter(|found| found.epoch == owner.epoch) else {
            return Some(0);
        };
        let fitting = documents.each.iter_mut().enumerate().filter(|(at, state)| fit(*at, state));
        let (at, state) = fitting.max_by_key(|(at, state)| (state.written, std::cmp::Reverse(*at)))?;
        state.busy = true;
        Some(at)
    }

    fn is_any_busy(&self, owner: &Ownership) -> bool {
        let positions = self.lock();
        positions.get(&owner.key).is_some_and(|documents| documents.each.iter().any(|state| state.busy))
    }

    fn states(&self, owner: &Ownership) -> Vec<State> {
        let positions = self.lock();
        let documents = positions.get(&owner.key).filter(|found| found.epoch == owner.epoch);
        documents.map_or_else(|| vec![State::default()], |documents| documents.each.clone())
    }

    /// How many documents there were when a transaction began.
    pub(super) fn count_at(&self, owner: &Ownership, began: u64) -> usize {
        self.states(owner).iter().filter(|state| state.since < began).count()
    }

    fn count(&self, owner: &Ownership) -> usize {
        self.states(owner).len()
    }

    /// There are this many documents now.
    fn grown(&self, owner: &Ownership, to: usize, now: u64) {
        let mut positions = self.lock();
        if let Some(documents) = positions.get_mut(&owner.key).filter(|found| found.epoch == owner.epoch) {
            let missing = to.saturating_sub(documents.each.len());
            documents.each.extend(std::iter::repeat_n(State::new(now), missing));
        }
    }
}

/// Makes more lane documents, because too many transactions were open at once: `seen` were there when one began that found none
/// for itself. Many come here at once, and the first one does it for all of them. An owner that was replaced makes none: the
/// position's own document is written too, as whoever takes over does.
pub(super) async fn grow(store: &MongoStore, owner: &Ownership, seen: usize) -> StoreResult<()> {
    let doing = "making documents for more lanes";
    let slots = &store.inner.slots;
    let to = (seen * 2).min(MAX_DOCUMENTS);
    if seen < 2 || to == seen || slots.count(owner) != seen {
        return Ok(());
    }
    let _slot = Slot::take_first(store, owner).await;
    rerun(store, async || {
        // Somebody else was faster, while this one waited or was in the way.
        if slots.count(owner) != seen {
            return Ok(());
        }
        let Some(mut txn) = attempts::hold(store, owner, doing).await? else { return Err(fenced(owner)) };
        let tx: &mut MongoTx = &mut txn;
        let lanes = tx.database.collection::<Document>(LANES);
        let new = (seen..to).map(|at| fold::empty_lane(&owner.key, at, owner.epoch));
        match lanes.insert_many(new).session(&mut tx.session).await {
            Ok(_) => txn.commit_own(doing).await?,
            // They are there, by another lane that has not said so yet, or by a commit whose answer got lost.
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => txn.rollback().await,
            Err(error) => return Err(error).context(doing),
        }
        slots.grown(owner, to, store.tick());
        Ok(())
    })
    .await
}

impl Slot {
    /// A document that nobody has written since `began`; if there is none for a while, the position's own, which will not do.
    pub(super) async fn take(store: &MongoStore, owner: &Ownership, began: u64) -> Self {
        let slots = &store.inner.slots;
        for _ in 0..LOOKS {
            if let Some(at) = slots.choose(owner, |_, state| !state.busy && state.written < began) {
                return Self::of(store, owner, at, true);
            }
            // What was written since is of no use, but one that is busy may end without having been written.
            if !slots.is_any_busy(owner) {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Self::take_first(store, owner).await
    }

    /// The position's own document, as soon as nobody else of this process writes it.
    pub(super) async fn take_first(store: &MongoStore, owner: &Ownership) -> Self {
        for _ in 0..LOOKS {
            if let Some(at) = store.inner.slots.choose(owner, |at, state| at == 0 && !state.busy) {
                return Self::of(store, owner, at, true);
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Self::of(store, owner, 0, false)
    }

    fn of(store: &MongoStore, owner: &Ownership, at: usize, taken: bool) -> Self {
        let known = Known::of(store, owner, at);
        Self { store: store.clone(), known, taken, commits: 0, next_offset: None }
    }

    pub(super) fn collection(&self) -> &'static str {
        if self.known.at == 0 { POSITIONS } else { LANES }
    }

    pub(super) fn filter(&self, progress: &Progress<'_>) -> Document {
        self.known.filter(progress)
    }

    /// It is committed, with this many transactions more and this next offset.
    pub(crate) fn confirmed(mut self, commits: i64, next_offset: Option<i64>) {
        (self.commits, self.next_offset) = (commits, next_offset);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.store.inner.slots.end(self, self.store.tick());
    }
}

impl Known {
    /// What is known about one document now; 0 is the position's own.
    pub(super) fn of(store: &MongoStore, owner: &Ownership, at: usize) -> Self {
        let each = store.inner.slots.states(owner);
        Self {
            owner: owner.clone(),
            at,
            this: each.get(at).copied().unwrap_or_default(),
            all_commits: each.iter().map(|state| state.commits).sum(),
            all_next: each.iter().filter_map(|state| state.next_offset).max(),
        }
    }

    /// Finds the document, if it still belongs to the owner and knows what the owner was told.
    pub(super) fn filter(&self, progress: &Progress<'_>) -> Document {
        let mut filter = doc! { "_id": lane_id(&self.owner.key, self.at), "epoch": self.owner.epoch };
        let more = progress.commits.map_or(0, |commits| (commits - self.all_commits).max(0));
        let commits = self.this.commits + more;
        if commits > 0 {
            filter.insert("commits", doc! { "$gte": commits });
        }
        let next = match progress.at_least {
            Some(at_least) if Some(at_least) > self.all_next => Some(at_least),
            _ => self.this.next_offset,
        };
        if let Some(next) = next {
            filter.insert("next_offset", doc! { "$gte": next });
        }
        filter
    }
}

/// The key of one of the documents; 0 is the position's own.
pub(super) fn lane_id(key: &PositionKey, at: usize) -> Document {
    let mut lane = id(key);
    if at > 0 {
        lane.insert("lane", i32::try_from(at).unwrap_or(i32::MAX));
    }
    lane
}
