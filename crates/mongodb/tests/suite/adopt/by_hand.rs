//! The pattern as people write it, and a shop that has it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind, Result, WriteFailure};
use mongodb::{ClientSession, Collection, Database};
use oncebox_core::clock::Clock;
use oncebox_core::error::BoxError;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{
    Adopt, AdoptedUse, Adopting, Claim, Claimed, ErrorClass, FindingLevel, Purge, PurgePass, Purged,
    Retention, Store, StoreResult,
};
use oncebox_mongodb::{MongoStore, MongoTxn, TemporaryMongo};
use tokio_util::sync::CancellationToken;

use super::super::support::{database, stock};

pub(super) const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
pub(super) const OTHER: &str = "01890a5d-ac96-774b-bcce-b302099a8058";
pub(super) const ONE: AdoptedUse = AdoptedUse { consumers: 1, tenants: false, longest_consumer: 5 };

/// A database with a collection of effects and the application's own receipts, and a store that has adopted them.
pub(super) struct Shop {
    pub(super) temporary: TemporaryMongo,
    pub(super) database: Database,
    pub(super) store: MongoStore,
}

impl Shop {
    /// The collections are made first: an insert in a transaction would do that in the way of others.
    pub(super) async fn new(adopt: Adopt) -> Self {
        let shop = Self::empty(adopt.clone()).await;
        shop.database.create_collection(adopt.table_name()).await.unwrap();
        shop
    }

    pub(super) async fn empty(adopt: Adopt) -> Self {
        let temporary = database().await;
        let store = MongoStore::builder(temporary.url()).adopt(adopt).connect().await.unwrap();
        let database = temporary.database().await;
        database.create_collection("effects").await.unwrap();
        Self { temporary, database, store }
    }

    pub(super) fn collection(&self, name: &str) -> Collection<Document> {
        self.database.collection(name)
    }

    pub(super) async fn documents(&self, name: &str) -> Vec<Document> {
        let found = self.collection(name).find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
        found.try_collect().await.unwrap()
    }

    pub(super) async fn apply(&self, of: &str, messages: &[Message<'_>]) -> (Vec<bool>, Vec<usize>) {
        let claimed = claim(&self.store, of, messages).await.unwrap();
        self.store.commit(claimed.txn, None).await.unwrap();
        (claimed.fresh, claimed.refused.iter().map(|one| one.at).collect())
    }

    pub(super) async fn purge(&self) -> Purged {
        let retention = [Retention { consumer: stock(), keep: Duration::from_secs(86_400) }];
        let now_ms = Clock::system().now_ms();
        let (stop, progress) = (CancellationToken::new(), |_| {});
        let pass =
            PurgePass { retention: &retention, now_ms, dry_run: false, stop: &stop, progress: &progress };
        self.store.purge(pass).await.unwrap()
    }

    pub(super) async fn effects(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for effect in self.documents("effects").await {
            *counts.entry(effect.get_str("id").unwrap().to_owned()).or_default() += 1;
        }
        counts
    }

    /// What is wrong with the collection, and that no claim is made then.
    pub(super) async fn refusal(&self) -> String {
        let findings = self.store.check_adopted(ONE).await.unwrap();
        let errors: Vec<_> = findings.iter().filter(|f| f.level == FindingLevel::Error).collect();
        assert_eq!(errors.len(), 1, "{findings:?}");
        let error = claim(&self.store, "stock", &ids(&["a"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Environment, "{error}");
        errors[0].detail.clone()
    }
}

/// Tenant, id, and what further fields get.
pub(super) type Message<'a> = (&'a str, &'a str, &'a [Option<String>]);

pub(super) fn ids<'a>(ids: &[&'a str]) -> Vec<Message<'a>> {
    ids.iter().map(|id| ("", *id, &[][..])).collect()
}

pub(super) async fn claim(
    store: &MongoStore,
    of: &str,
    messages: &[Message<'_>],
) -> StoreResult<Claimed<MongoTxn>> {
    let consumer = ConsumerName::new(of).unwrap();
    let claims: Vec<_> = messages
        .iter()
        .map(|(tenant, message_id, set)| {
            let scope = Tenant::new(*tenant).unwrap();
            let key = ReceiptKey::of(&consumer, &scope, &MessageId::new(*message_id).unwrap());
            Claim { key, tenant, message_id, set, fingerprint: None }
        })
        .collect();
    store.claim(&consumer, &claims).await
}

pub(super) fn adopt(collection: &str, message_id: &str) -> Adopt {
    Adopt::table(collection, message_id).unwrap()
}

/// The collection as it is found in tutorials.
pub(super) async fn inbox_event() -> Shop {
    Shop::new(adopt("inbox_event", "_id").processed_at("receivedAt").unwrap()).await
}

pub(super) fn once(names: &[&str]) -> BTreeMap<String, usize> {
    names.iter().map(|name| ((*name).to_owned(), 1)).collect()
}

/// The ways in which the pattern is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Old {
    /// The receipt first and without a transaction, its duplicate caught; then the effect.
    TwoSteps,
    /// In a transaction: the receipt is looked for, then written.
    LookFirst,
    /// In a transaction: the receipt is written, its duplicate caught.
    InsertFirst,
}

pub(super) const WAYS: [Old; 3] = [Old::TwoSteps, Old::LookFirst, Old::InsertFirst];

/// A process with old code in it.
pub(super) struct OldProcess {
    database: Database,
    pub(super) session: ClientSession,
}

impl OldProcess {
    pub(super) async fn start(shop: &Shop) -> Self {
        let database = shop.temporary.database().await;
        let session = database.client().start_session().await.unwrap();
        Self { database, session }
    }

    fn inbox(&self) -> Collection<Document> {
        self.database.collection("inbox_event")
    }

    fn effects(&self) -> Collection<Document> {
        self.database.collection("effects")
    }

    /// Writes the receipt, and says whether the message is to be applied. The transaction is open then, if there is one.
    pub(super) async fn begin(&mut self, old: Old, id: &str) -> Result<bool> {
        let receipt =
            doc! { "_id": id, "eventType": "order.placed", "receivedAt": mongodb::bson::DateTime::now() };
        if old == Old::TwoSteps {
            return fresh(self.inbox().insert_one(receipt).await.map(|_| ()));
        }
        self.session.start_transaction().await?;
        if old == Old::LookFirst {
            let seen = self.inbox().find_one(doc! { "_id": id }).session(&mut self.session).await?;
            if seen.is_some() {
                self.session.abort_transaction().await?;
                return Ok(false);
            }
        }
        let fresh = fresh(self.inbox().insert_one(receipt).session(&mut self.session).await.map(|_| ()))?;
        if !fresh {
            self.session.abort_transaction().await?;
        }
        Ok(fresh)
    }

    pub(super) async fn effect(&mut self, old: Old, id: &str) -> Result<()> {
        let effect = doc! { "id": id };
        if old == Old::TwoSteps {
            return self.effects().insert_one(effect).await.map(|_| ());
        }
        self.effects().insert_one(effect).session(&mut self.session).await.map(|_| ())
    }

    pub(super) async fn apply(&mut self, old: Old, id: &str) -> Result<bool> {
        let fresh = self.begin(old, id).await?;
        if fresh {
            self.effect(old, id).await?;
            if old != Old::TwoSteps {
                self.session.commit_transaction().await?;
            }
        }
        Ok(fresh)
    }

    /// Until nobody is in the way, as the old code's broker would deliver the message again.
    pub(super) async fn apply_at_last(&mut self, old: Old, id: &str) -> bool {
        loop {
            match self.apply(old, id).await {
                Ok(fresh) => return fresh,
                Err(error) if MongoStore::classify(&error) == ErrorClass::Transient => {
                    self.session.abort_transaction().await.ok();
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..5))).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// False for a duplicate key.
fn fresh(inserted: Result<()>) -> Result<bool> {
    match inserted {
        Ok(()) => Ok(true),
        Err(error) if is_duplicate(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_duplicate(error: &Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.code == 11000,
        ErrorKind::Command(command) => command.code == 11000,
        _ => false,
    }
}

/// What oncebox does with a batch; again, if something was in the way.
pub(super) async fn new_apply(store: &MongoStore, batch: &[&str]) -> Vec<bool> {
    loop {
        match new_once(store, batch).await {
            Ok(fresh) => return fresh,
            Err(error) if MongoStore::classify(&*error) == ErrorClass::Transient => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn new_once(store: &MongoStore, batch: &[&str]) -> std::result::Result<Vec<bool>, BoxError> {
    let Claimed { mut txn, fresh, refused, .. } = claim(store, "stock", &ids(batch)).await?;
    assert_eq!(refused, []);
    for (id, _) in batch.iter().zip(&fresh).filter(|(_, fresh)| **fresh) {
        txn.collection::<Document>("effects").insert_one(doc! { "id": *id }).await?;
    }
    store.commit(txn, None).await?;
    Ok(fresh)
}
