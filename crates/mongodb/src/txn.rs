//! One transaction, from the claim to the commit: the hot path.

mod trace;

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use mongodb::Database;
use mongodb::bson::doc;
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria, TransactionOptions};
use oncebox_core::error::{Error, Wording};
use oncebox_core::inbox::Selector;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Adopt, Advance, Claim, Claimed, ErrorClass, Store, StoreError, StoreResult};

use crate::classify::{Context, NO_SUCH_TRANSACTION, Said, class_of_driver, code_of, is_broken, is_unknown};
use crate::options::majority;
use crate::position::Slot;
use crate::rerun::Waiting;
use crate::store::MongoStore;
use crate::tx::MongoTx;
use crate::wording::store_error;
use crate::{adopted, claim, classify, orphans, position};
pub(crate) use trace::Trace;
use trace::torn;

/// How long the server looks for a majority before it answers that it does not know.
const COMMIT_ANSWER: Duration = Duration::from_secs(20);
/// After how much silence the next primary is asked.
const COMMIT_SILENCE: Duration = Duration::from_secs(25);
/// How long to wait for a rollback, so that what comes next is not in its way.
const ROLLBACK_ANSWER: Duration = Duration::from_secs(2);

impl Store for MongoStore {
    type Conn = MongoTx;
    type Txn = MongoTxn;

    fn adopted(&self) -> Option<&Adopt> {
        adopted::adopted(self)
    }

    fn further(&self) -> &[(String, Selector)] {
        adopted::further(self)
    }

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<MongoTxn>> {
        let claimed = async {
            match &self.inner.adopted {
                Some(collection) => adopted::claim(self, collection, consumer, claims).await,
                None => claim::claim(self, consumer, claims).await,
            }
        };
        self.patiently("claiming receipts", claimed).await
    }

    async fn claim_within(
        &self,
        conn: &mut MongoTx,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        match &self.inner.adopted {
            Some(collection) => adopted::claim_within(self, collection, conn, consumer, claims).await,
            None => claim::claim_within(conn, consumer, claims).await,
        }
    }

    async fn commit(&self, txn: MongoTxn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        // In a box: whoever commits would carry its room along.
        Box::pin(txn.commit_with(self, advance.as_ref())).await
    }

    async fn rollback(&self, txn: MongoTxn) {
        let was_refused = txn.was_refused();
        txn.rollback().await;
        if was_refused {
            orphans::end(self).await;
        }
    }

    async fn undo(&self, mut txn: MongoTxn) -> StoreResult<()> {
        let trace = txn.take_trace();
        self.rollback(txn).await;
        self.ensure_not_left(trace, "rolling back").await
    }

    fn wording(error: &(dyn std::error::Error + 'static), _class: ErrorClass) -> Option<Wording> {
        crate::wording::wording(error)
    }

    fn classify(error: &(dyn std::error::Error + 'static)) -> ErrorClass {
        classify::classify(error)
    }
}

impl MongoStore {
    /// Opens a transaction, for a loop of your own around [`Inbox::claim`](oncebox_core::inbox::Inbox::claim). It begins with
    /// its first operation.
    ///
    /// # Errors
    /// `away` if there is no primary.
    pub async fn transaction(&self) -> Result<MongoTxn, Error> {
        Ok(self.begin().await?)
    }

    /// Opens a transaction for messages.
    pub(crate) async fn begin(&self) -> StoreResult<MongoTxn> {
        self.begin_on(&self.inner.messages).await
    }

    /// Opens a transaction on a connection that carries no messages.
    pub(crate) async fn begin_aside(&self) -> StoreResult<MongoTxn> {
        self.begin_on(&self.inner.aside).await
    }

    /// Fails if the handler has committed by itself. Without an answer there is nobody who could tell.
    async fn ensure_not_left(&self, trace: Option<Trace>, doing: &str) -> StoreResult<()> {
        let Some(trace) = trace else { return Ok(()) };
        match self.patiently(doing, async { Ok(trace.is_left(self).await) }).await {
            Ok(true) => Err(torn(doing)),
            _ => Ok(()),
        }
    }

    async fn begin_on(&self, database: &Database) -> StoreResult<MongoTxn> {
        let doing = "beginning a transaction";
        let began = self.tick();
        let mut session = database.client().start_session().await.context_of_begin(doing)?;
        session.start_transaction().with_options(options()).await.context_of_begin(doing)?;
        let tx = MongoTx::of_store(session, database.clone());
        Ok(MongoTxn { tx, began, store: self.clone(), slot: None })
    }
}

/// Everything that is read is from one moment, and what is committed has the majority's journals.
fn options() -> TransactionOptions {
    TransactionOptions::builder()
        .read_concern(ReadConcern::snapshot())
        .write_concern(majority())
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        .max_commit_time(COMMIT_ANSWER)
        .build()
}

/// An open transaction. Handlers see it as their [`MongoTx`]. Dropped, it is aborted.
#[derive(Debug)]
pub struct MongoTxn {
    tx: MongoTx,
    /// When it began, in the order of this process: before its snapshot was taken.
    pub(crate) began: u64,
    store: MongoStore,
    /// The document of a position that it writes, from then on until it has ended.
    slot: Option<Slot>,
}

impl MongoTxn {
    /// Commits.
    ///
    /// # Errors
    /// As a batch would: nothing is committed, or, if it is `away`, nobody knows.
    pub async fn commit(self) -> Result<(), Error> {
        let store = self.store.clone();
        Ok(Box::pin(self.commit_with(&store, None)).await?)
    }

    /// Moves the position and commits. A handler may have run in the transaction.
    async fn commit_with(mut self, store: &MongoStore, advance: Option<&Advance<'_>>) -> StoreResult<()> {
        let doing = "committing";
        let last = async {
            self.tx.finish().await?;
            match advance {
                Some(advance) => position::advance(store, &mut self, advance).await,
                None => Ok(()),
            }
        };
        if let Err(error) = store.patiently(doing, last).await {
            store.undo(self).await?;
            return Err(error);
        }
        let (slot, trace) = (self.slot.take(), self.take_trace());
        if let Err(error) = self.send_commit(doing, advance.is_some()).await {
            // If nobody knows whether it is committed, the receipts may well be there.
            if error.class != ErrorClass::Away {
                store.ensure_not_left(trace, doing).await?;
            }
            return Err(error);
        }
        if let (Some(slot), Some(advance)) = (slot, advance) {
            slot.confirmed(1, advance.progress.next_offset);
        }
        Ok(())
    }

    /// Holds the document of a position until the transaction has ended.
    pub(crate) fn hold(&mut self, slot: Slot) -> &Slot {
        self.slot.insert(slot)
    }

    /// Commits a transaction that holds only operations of ours.
    pub(crate) async fn commit_own(self, doing: &str) -> StoreResult<()> {
        self.send_commit(doing, false).await
    }

    /// The one way to commit. An answer that got lost is asked for again, and only that: the server commits a transaction once.
    /// `was_open`: the position was moved in it just now, so nothing that the handler did has ended it.
    async fn send_commit(mut self, doing: &str, was_open: bool) -> StoreResult<()> {
        let mut waiting = Waiting::at_most(self.store.inner.limits.commit);
        let mut lost = false;
        loop {
            let commit =
                tokio::time::timeout(COMMIT_SILENCE, self.tx.session.commit_transaction().into_future());
            let error = match commit.await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => {
                    lost = true;
                    if !waiting.wait().await {
                        self.give_up();
                        return Err(unknown(doing, "the server was silent"));
                    }
                    continue;
                }
            };
            if is_unknown(&error) {
                lost = true;
                if !waiting.wait().await {
                    self.give_up();
                    return Err(unknown(doing, Said(error)));
                }
                continue;
            }
            // After an answer that got lost, a primary that does not know the transaction is a new one: nothing is committed, and
            // no message has a part in it. The driver asks once more by itself, so it may have got lost there.
            let is_new = was_open && code_of(&error) == Some(NO_SUCH_TRANSACTION);
            let nobodys = lost || is_new || is_broken(&error);
            let class = if nobodys { ErrorClass::Away } else { class_of_driver(&error) };
            return Err(store_error(class, doing, error));
        }
    }

    /// Ends the transaction if the server has never heard of the commit: it would hold its documents until its time is over,
    /// and whoever runs the batch again would wait for that. The session is not given to anybody else before.
    fn give_up(self) {
        tokio::spawn(async move {
            let doing = "ending a transaction that nobody knows about";
            let id = self.tx.session.id().clone();
            let aside = &self.store.inner.aside;
            let killed = async { aside.run_command(doc! { "killSessions": [id] }).await.context(doing) };
            if let Err(error) = self.store.patiently(doing, killed).await {
                tracing::debug!(%error, "left the transaction to the server");
            }
        });
    }

    /// Undoes everything. If that fails the server does it when the transaction's time is over.
    ///
    /// By itself: the driver looks for a server that is away, twice, and whoever waits for that does not see how things are.
    pub(crate) fn rollback(mut self) -> impl Future<Output = ()> + use<> {
        let rollback = tokio::spawn(async move {
            let (store, doing) = (self.store.clone(), "rolling back");
            let aborted = async { self.tx.session.abort_transaction().await.context(doing) };
            if let Err(error) = store.patiently(doing, aborted).await {
                tracing::debug!(%error, "left the transaction to the server");
            }
        });
        async move {
            if tokio::time::timeout(ROLLBACK_ANSWER, rollback).await.is_err() {
                tracing::debug!("the server has not confirmed a rollback yet");
            }
        }
    }
}

/// Nobody knows whether it is committed. The receipts do: the batch is run again, and is fresh or a duplicate.
fn unknown(doing: &str, error: impl Into<oncebox_core::error::BoxError>) -> StoreError {
    StoreError::new(ErrorClass::Away, format!("{doing} (nobody knows whether it is committed)"), error)
}

impl Deref for MongoTxn {
    type Target = MongoTx;

    fn deref(&self) -> &MongoTx {
        &self.tx
    }
}

impl DerefMut for MongoTxn {
    fn deref_mut(&mut self) -> &mut MongoTx {
        &mut self.tx
    }
}
