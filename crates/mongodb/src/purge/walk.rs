//! The way through the receipts, in the order of their keys.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Result;
use mongodb::options::Hint;
use mongodb::{Collection, Database};
use oncebox_core::store::{ErrorClass, IdKind, PassEnd, PurgePass, PurgeProgress, Purged, StoreResult};

use super::DOING;
use super::horizon::{self, Horizons, horizons};
use super::lease::{Lease, Place};
use crate::adopted::stored_id;
use crate::claim::INBOX;
use crate::classify::Context;
use crate::dead::DEAD;
use crate::status::receipts_estimate;
use crate::store::MongoStore;
use crate::time::date;
use crate::tx::MongoTx;

/// Receipts that one step looks at: a few hundredths of a second.
const STEP_RECEIPTS: usize = 2000;
/// How many times as long as it works a pass rests, so that the messages keep most of the server.
const REST_FACTOR: u32 = 4;
/// The longest rest; a lease lasts longer.
const MAX_REST: Duration = Duration::from_secs(30);
/// How often a step is tried that a batch was in the way of.
const MAX_TRIES: u32 = 5;

/// Where the receipts are, and what their fields mean.
pub(crate) struct Receipts {
    pub(crate) collection: Collection<Document>,
    /// The field of the message id, and how ids are written there.
    pub(crate) id: String,
    pub(crate) kind: IdKind,
    /// The field that says whose they are; without it all are of one consumer.
    pub(crate) consumer: Option<String>,
    pub(crate) only: Option<String>,
    pub(crate) tenant: Option<String>,
    /// The field that says how old they are.
    pub(crate) time: String,
    pub(crate) letters: Letters,
}

/// How the id of a dead letter, which is as the message spelled it, is compared with that of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Letters {
    /// Byte by byte.
    Plain,
    /// As UUIDs, which have several spellings.
    Uuids,
}

impl Letters {
    fn compared(self, id: &str) -> String {
        match self {
            Self::Plain => id.to_owned(),
            Self::Uuids => id.to_lowercase().replace('-', ""),
        }
    }

    /// The letters of these ids, as [`Letters::compared`] has them.
    fn among(self, ids: &[String]) -> Document {
        match self {
            Self::Plain => doc! { "message_id": { "$in": ids } },
            Self::Uuids => {
                let lower = doc! { "$toLower": "$message_id" };
                let plain = doc! { "$replaceAll": { "input": lower, "find": "-", "replacement": "" } };
                doc! { "$expr": { "$in": [plain, ids] } }
            }
        }
    }
}

/// A receipt, as far as retention goes.
struct Receipt {
    key: Bson,
    consumer: String,
    tenant: String,
    /// As it is compared with those of letters.
    message_id: String,
    processed_ms: i64,
}

impl Receipts {
    /// In oncebox's own collection.
    pub(crate) fn own(database: &Database) -> Self {
        Self {
            collection: database.collection(INBOX),
            id: "message_id".to_owned(),
            kind: IdKind::Text { max_chars: None, padded: false },
            consumer: Some("consumer".to_owned()),
            only: None,
            tenant: Some("tenant".to_owned()),
            time: "processed_at".to_owned(),
            letters: Letters::Plain,
        }
    }

    fn fields(&self) -> Document {
        let fields = [Some(&self.id), self.consumer.as_ref(), self.tenant.as_ref(), Some(&self.time)];
        fields.into_iter().flatten().map(|field| (field.clone(), Bson::Int32(1))).collect()
    }

    /// A receipt from its document; `None` if it does not say whose it is or how old, and so stays.
    fn read(&self, document: &Document) -> Option<Receipt> {
        let text = |field: &String| document.get_str(field).ok().map(str::to_owned);
        let id = self.kind.id_of(&stored_id(document.get(&self.id)?)?)?;
        Some(Receipt {
            key: document.get("_id")?.clone(),
            consumer: self.consumer.as_ref().map_or_else(|| self.only.clone(), text)?,
            tenant: self.tenant.as_ref().and_then(text).unwrap_or_default(),
            message_id: self.letters.compared(&id),
            processed_ms: document.get_datetime(&self.time).ok()?.timestamp_millis(),
        })
    }

    /// What removes receipts. One that a replay has made young meanwhile stays.
    fn removal(&self, consumer: &str, horizon: i64, keys: &[Bson]) -> Document {
        let mut removal = doc! { "_id": { "$in": keys }, &self.time: { "$lt": date(horizon) } };
        if let Some(field) = &self.consumer {
            removal.insert(field, consumer);
        }
        removal
    }

    /// The messages among these that lie in the dead letters, by tenant and id.
    async fn with_letters(
        &self,
        tx: &mut MongoTx,
        consumer: &str,
        receipts: &[Receipt],
    ) -> Result<HashSet<(String, String)>> {
        let ids: Vec<String> = receipts.iter().map(|receipt| receipt.message_id.clone()).collect();
        let mut of = self.letters.among(&ids);
        of.insert("consumer", consumer);
        let letters = tx.database.collection::<Document>(DEAD);
        let found = letters.find(of).projection(doc! { "tenant": 1, "message_id": 1 });
        let mut found = found.session(&mut tx.session).await?;
        let mut found = found.stream(&mut tx.session);
        let mut kept = HashSet::new();
        while let Some(letter) = found.try_next().await? {
            let text = |name| letter.get_str(name).unwrap_or_default();
            kept.insert((text("tenant").to_owned(), self.letters.compared(text("message_id"))));
        }
        Ok(kept)
    }
}

/// A pass on its way.
pub(super) struct Walk<'a> {
    store: &'a MongoStore,
    pass: &'a PurgePass<'a>,
    receipts: Receipts,
    horizons: Horizons,
    place: Place,
    total: u64,
    purged: Purged,
}

/// The keys that one step covers, and which of them may go, by consumer.
struct Step {
    end: Place,
    expired: BTreeMap<String, Vec<Bson>>,
}

impl<'a> Walk<'a> {
    /// From the beginning.
    pub(super) async fn new(
        store: &'a MongoStore,
        pass: &'a PurgePass<'a>,
        receipts: Receipts,
    ) -> StoreResult<Self> {
        let horizons = horizons(store, pass).await?;
        let total = store.patiently(DOING, receipts_estimate(store, DOING)).await?;
        let (place, purged) = (Place::default(), Purged::default());
        Ok(Self { store, pass, receipts, horizons, place, total, purged })
    }

    /// The collection that it walks over, with its database.
    pub(super) fn collection(&self) -> String {
        self.receipts.collection.namespace().to_string()
    }

    /// From where an earlier pass was left.
    pub(super) fn begin_at(&mut self, place: Place) {
        self.place = place;
    }

    /// Up to where it got.
    pub(super) fn into_place(self) -> Place {
        self.place
    }

    /// Counts what would go.
    pub(super) async fn count(&mut self) -> StoreResult<Purged> {
        while !self.pass.stop.is_cancelled() {
            let look = async {
                let mut txn = self.store.begin_aside().await?;
                let step = self.next_step(&mut txn).await.context(DOING);
                txn.rollback().await;
                step
            };
            let Some(step) = self.store.patiently(DOING, look).await? else {
                return Ok(self.ended(PassEnd::Finished));
            };
            let expired = step.expired.values().map(|keys| keys.len() as u64).sum();
            self.arrived(step.end, expired);
        }
        Ok(self.ended(PassEnd::Stopped))
    }

    /// Removes what may go. A replay that is under way may be in a step's way: then the step is tried again, a few times.
    pub(super) async fn remove(&mut self, lease: &Lease) -> StoreResult<Purged> {
        let mut tries = 0;
        while !self.pass.stop.is_cancelled() {
            let began = Instant::now();
            tries += 1;
            match self.store.patiently(DOING, self.step(lease)).await {
                Ok(Some((end, removed))) => {
                    tries = 0;
                    self.arrived(end, removed);
                }
                Ok(None) => return Ok(self.ended(PassEnd::Finished)),
                Err(error) if error.class == ErrorClass::Fenced => return Ok(self.ended(PassEnd::Elsewhere)),
                Err(error) if error.class == ErrorClass::Transient && tries < MAX_TRIES => {
                    tracing::debug!(%error, "a step of the purge is tried again");
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                biased;
                () = self.pass.stop.cancelled() => {}
                () = tokio::time::sleep((began.elapsed() * REST_FACTOR).min(MAX_REST)) => {}
            }
        }
        Ok(self.ended(PassEnd::Stopped))
    }

    /// One step: where it ends, and how many receipts it removed. `None` behind the last receipt.
    async fn step(&self, lease: &Lease) -> StoreResult<Option<(Place, u64)>> {
        let mut txn = self.store.begin_aside().await?;
        let removed = async {
            let Some(step) = self.next_step(&mut txn).await.context(DOING)? else { return Ok(None) };
            let mut removed = 0;
            for (consumer, keys) in &step.expired {
                let Some(horizon) = self.horizons.get(consumer) else { continue };
                removed += self.delete(&mut txn, consumer, *horizon, keys).await?;
            }
            lease.renew(&mut txn, &step.end).await?;
            Ok(Some((step.end, removed)))
        };
        match removed.await {
            Ok(Some(removed)) => {
                txn.commit_own(DOING).await?;
                Ok(Some(removed))
            }
            other => {
                txn.rollback().await;
                other
            }
        }
    }

    /// Looks which receipts come next, and which of them may go. A receipt whose message lies in the dead letters stays:
    /// replaying the letter relies on it.
    async fn next_step(&self, tx: &mut MongoTx) -> Result<Option<Step>> {
        let found = self.next_documents(tx).await?;
        let Some(reached) = found.last().and_then(|last| last.get("_id")).cloned() else { return Ok(None) };
        let done = self.place.done.saturating_add(found.len() as u64);
        let mut old: BTreeMap<String, Vec<Receipt>> = BTreeMap::new();
        for receipt in found.iter().filter_map(|document| self.receipts.read(document)) {
            if self.horizons.get(&receipt.consumer).is_some_and(|horizon| receipt.processed_ms < *horizon) {
                old.entry(receipt.consumer.clone()).or_default().push(receipt);
            }
        }
        let mut expired = BTreeMap::new();
        for (consumer, receipts) in old {
            let kept = self.receipts.with_letters(tx, &consumer, &receipts).await?;
            let gone = receipts.into_iter().filter_map(|Receipt { key, tenant, message_id, .. }| {
                (!kept.contains(&(tenant, message_id))).then_some(key)
            });
            let gone: Vec<Bson> = gone.collect();
            if !gone.is_empty() {
                expired.insert(consumer, gone);
            }
        }
        Ok(Some(Step { end: Place { reached: Some(reached), done }, expired }))
    }

    /// The receipts of a step. Their keys may be of several kinds: an index has them all in one order, a comparison looks at one
    /// kind only. The first one is where the last step has ended.
    async fn next_documents(&self, tx: &mut MongoTx) -> Result<Vec<Document>> {
        let by_key = doc! { "_id": 1 };
        let mut find =
            self.receipts.collection.find(doc! {}).projection(self.receipts.fields()).sort(by_key.clone());
        find = find.hint(Hint::Keys(by_key)).limit(i64::try_from(STEP_RECEIPTS + 1).unwrap_or(i64::MAX));
        if let Some(reached) = &self.place.reached {
            find = find.min(doc! { "_id": reached });
        }
        let mut found = find.session(&mut tx.session).await?;
        let mut found: Vec<Document> = found.stream(&mut tx.session).try_collect().await?;
        let seen = self.place.reached.is_some()
            && found.first().and_then(|first| first.get("_id")) == self.place.reached.as_ref();
        if seen {
            found.remove(0);
        }
        found.truncate(STEP_RECEIPTS);
        Ok(found)
    }

    /// Deletes by key, after the horizon is written.
    async fn delete(
        &self,
        tx: &mut MongoTx,
        consumer: &str,
        horizon: i64,
        keys: &[Bson],
    ) -> StoreResult<u64> {
        horizon::write(tx, consumer, horizon).await.context("writing down the horizon")?;
        let delete = self.receipts.collection.delete_many(self.receipts.removal(consumer, horizon, keys));
        let deleted = delete.session(&mut tx.session).await.context("removing old receipts")?;
        Ok(deleted.deleted_count)
    }

    fn arrived(&mut self, end: Place, removed: u64) {
        self.purged.receipts += removed;
        self.place = end;
        self.total = self.total.max(self.place.done);
        (self.pass.progress)(PurgeProgress { removed, done: self.place.done, total: self.total });
    }

    fn ended(&self, end: PassEnd) -> Purged {
        Purged { end, ..self.purged }
    }
}
