//! What the properties have in common.

use bytes::Bytes;
use oncebox_core::error::BoxError;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::message::Record;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{
    Advance, Claim, DeadFilter, DeadLetter, DeadLetters, Duplicates, Migrate, Ownership, PositionKey,
    Progress, Store, StoreResult, StoredDeadLetter,
};

use super::subject::Subject;

/// A subject with oncebox's tables, and a store on it.
pub(super) struct Fixture<T: Subject> {
    pub(super) subject: T,
    pub(super) store: T::Store,
    /// The consumer that most properties use.
    pub(super) consumer: ConsumerName,
}

impl<T: Subject> Fixture<T> {
    pub(super) async fn start() -> Result<Self, BoxError> {
        let subject = T::start().await?;
        let store = subject.connect().await?;
        store.migrate().await?;
        Ok(Self { subject, store, consumer: ConsumerName::new("stock")? })
    }

    /// Applies messages without a tenant as the engine does: claim, effect of the fresh ones, commit.
    pub(super) async fn apply(&self, ids: &[&str]) -> Result<Vec<bool>, BoxError> {
        self.apply_and(ids, None).await
    }

    /// [`Fixture::apply`], and moves a position.
    pub(super) async fn apply_and(
        &self,
        ids: &[&str],
        advance: Option<Advance<'_>>,
    ) -> Result<Vec<bool>, BoxError> {
        apply::<T>(&self.store, &self.consumer, ids, advance).await
    }

    /// Which of these are fresh; leaves nothing behind.
    pub(super) async fn fresh(&self, ids: &[&str]) -> Result<Vec<bool>, BoxError> {
        let claimed = self.store.claim(&self.consumer, &claims(&self.consumer, "", ids)?).await?;
        self.store.rollback(claimed.txn).await;
        Ok(claimed.fresh)
    }

    /// Parks letters in a transaction of their own, with the receipts of those that have an id.
    pub(super) async fn park(&self, letters: &[DeadLetter]) -> Result<(), BoxError> {
        let mut txn = self.store.claim(&self.consumer, &[]).await?.txn;
        for letter in letters {
            if let Some(id) = &letter.message_id {
                let receipt = claims(&self.consumer, letter.tenant.as_str(), &[id])?;
                self.store.claim_within(&mut txn, &self.consumer, &receipt).await?;
            }
        }
        self.store.park(&mut txn, &self.consumer, letters).await?;
        Ok(self.store.commit(txn, None).await?)
    }

    /// The letters, whole, in the order of their numbers.
    pub(super) async fn letters(&self) -> Result<Vec<StoredDeadLetter>, BoxError> {
        let mut letters = Vec::new();
        for summary in self.store.dead_letters(&all()).await? {
            letters
                .push(self.store.dead_letter(summary.number).await?.ok_or("a listed letter is not there")?);
        }
        Ok(letters)
    }

    pub(super) fn position(&self, partition: i32) -> PositionKey {
        PositionKey { consumer: self.consumer.clone(), topic: "orders".into(), partition }
    }
}

pub(super) async fn apply<T: Subject>(
    store: &T::Store,
    consumer: &ConsumerName,
    ids: &[&str],
    advance: Option<Advance<'_>>,
) -> Result<Vec<bool>, BoxError> {
    let mut claimed = store.claim(consumer, &claims(consumer, "", ids)?).await?;
    for (id, fresh) in ids.iter().zip(&claimed.fresh) {
        if *fresh {
            T::add_effect(&mut claimed.txn, id).await?;
        }
    }
    store.commit(claimed.txn, advance).await?;
    Ok(claimed.fresh)
}

pub(super) fn claims<'a>(
    consumer: &ConsumerName,
    tenant: &'a str,
    ids: &[&'a str],
) -> Result<Vec<Claim<'a>>, BoxError> {
    let scope = Tenant::new(tenant)?;
    let claim = |id: &&'a str| {
        let key = ReceiptKey::of(consumer, &scope, &MessageId::new(*id)?);
        Ok(Claim { key, tenant, message_id: id, set: &[], fingerprint: None })
    };
    ids.iter().map(claim).collect()
}

pub(super) fn advance(owner: &Ownership, next_offset: Option<i64>) -> Option<Advance<'_>> {
    Some(Advance {
        owner,
        progress: next(next_offset),
        applied: 1,
        duplicates: Duplicates::default(),
        finished_attempt: None,
    })
}

/// Progress to this offset, and nothing else.
pub(super) fn next(next_offset: Option<i64>) -> Progress<'static> {
    Progress { next_offset, ..Progress::default() }
}

/// A letter of a message with that id at that offset of `orders/0`.
pub(super) fn letter(id: Option<&str>, offset: i64) -> DeadLetter {
    let mut record = Record::at("orders", 0, offset);
    record.payload = Some(Bytes::from_static(b"{}"));
    DeadLetter {
        tenant: Tenant::none(),
        message_id: id.map(str::to_owned),
        record,
        error: "no such stock".to_owned(),
        attempts: 5,
    }
}

/// All letters, up to a hundred.
pub(super) fn all() -> DeadFilter {
    DeadFilter { limit: 100, ..DeadFilter::default() }
}

/// The error of something that must not succeed.
pub(super) fn refused<R>(
    result: StoreResult<R>,
    what: &str,
) -> Result<oncebox_core::store::StoreError, BoxError> {
    match result {
        Ok(_) => Err(format!("{what} succeeded").into()),
        Err(error) => Ok(error),
    }
}
