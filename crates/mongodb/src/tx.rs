//! What handlers get: the open transaction, with which the natural code is the right code.

mod operation;
mod writes;

use std::fmt;

use mongodb::bson::{Document, doc};
use mongodb::error::{ErrorKind, Result};
use mongodb::options::{ReadPreference, SelectionCriteria};
use mongodb::{ClientSession, Collection, Database};
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};

use crate::classify::{Context, class_of_driver, is_of_values, said};
use crate::counter;
use crate::txn::Trace;
pub use operation::{Operation, TxCollection};
use writes::Writes;
pub(crate) use writes::refused;

/// An open transaction, as handlers see it.
///
/// Every operation on a collection that comes from here is part of the transaction, so nobody can forget to pass the session.
///
/// ```no_run
/// use oncebox::mongodb::MongoTx;
/// use mongodb::bson::doc;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Order { sku: String, qty: i32 }
///
/// async fn deduct(tx: &mut MongoTx, order: Order) -> oncebox::Result {
///     let stock = doc! { "_id": &order.sku };
///     tx.collection::<Order>("orders").insert_one(&order).await?;
///     tx.collection::<Order>("stock").update_one(stock, doc! { "$inc": { "on_hand": -order.qty } }).await?;
///     Ok(())
/// }
/// ```
///
/// An error of the server ends the transaction, whatever the handler does about it: return it. An error of the driver about values,
/// such as a document that is not what the handler takes it for, does not.
pub struct MongoTx {
    pub(crate) session: ClientSession,
    pub(crate) database: Database,
    /// Writes that are sent before the next operation that waits for an answer, and at the end.
    later: Writes,
    /// Events that are written at the end. `None`: the transaction is somebody else's, who would not know.
    events: Option<Vec<Document>>,
    /// Why the transaction is over on the server, although its handler may go on.
    ended: Option<(ErrorClass, String)>,
    /// Whether a handler has had the session in its hands.
    lent: bool,
    /// What is there if it has committed.
    trace: Option<Trace>,
    /// Whether an operation has begun whose answer has not come.
    unanswered: bool,
    /// Whether one was dropped so.
    dropped: bool,
}

impl fmt::Debug for MongoTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoTx").field("database", &self.database.name()).finish_non_exhaustive()
    }
}

impl MongoTx {
    /// A transaction of the application's own, for a claim or an event in it: `session` has one open, and whoever owns
    /// it commits it, with a write concern of majority, also if the message was a duplicate: only then is the receipt that was
    /// found there for good.
    ///
    /// What was queued with [`TxCollection::insert_later`] and its like is sent by [`MongoTx::flush`].
    #[must_use]
    pub fn new(session: ClientSession, database: Database) -> Self {
        Self {
            session,
            database,
            later: Writes::default(),
            events: None,
            ended: None,
            lent: false,
            trace: None,
            unanswered: false,
            dropped: false,
        }
    }

    /// One that is committed by the store, and so can write its events at the end.
    pub(crate) fn of_store(session: ClientSession, database: Database) -> Self {
        Self { events: Some(Vec::new()), ..Self::new(session, database) }
    }

    /// A collection of the application's database, inside the transaction.
    pub fn collection<T: Send + Sync>(&mut self, name: &str) -> TxCollection<'_, T> {
        TxCollection::new(self.database.collection(name), self)
    }

    /// The driver's own database and session, for what is not offered here. Pass the session to every operation. Whatever was
    /// queued must be sent first, with [`MongoTx::flush`]. Neither commit nor abort: the batch would fail.
    pub fn parts(&mut self) -> (&Database, &mut ClientSession) {
        self.lent = true;
        (&self.database, &mut self.session)
    }

    /// Gives the session back, for the owner of a transaction to commit.
    #[must_use]
    pub fn into_session(self) -> ClientSession {
        self.session
    }

    /// Sends the writes that were queued, grouped into as few commands as their order allows.
    ///
    /// # Errors
    /// The first write that the server refuses. It ends the transaction.
    pub async fn flush(&mut self) -> Result<()> {
        if self.later.is_empty() {
            return Ok(());
        }
        let later = std::mem::take(&mut self.later);
        self.starting();
        let sent = later.send(&self.database, &mut self.session).await;
        self.note_ours(&sent);
        sent
    }

    /// An operation begins. If the one before it was dropped, nobody knows what became of it, and no later success heals that.
    pub(crate) fn starting(&mut self) {
        self.dropped |= self.unanswered;
        self.unanswered = true;
    }

    /// Its answer has come.
    pub(crate) fn answered(&mut self) {
        self.unanswered = false;
    }

    /// The answer to an operation of a handler has come. An error of the server has ended the transaction; one of the driver about
    /// what goes in or comes out has not.
    pub(crate) fn note<T>(&mut self, outcome: &Result<T>) {
        match outcome {
            Err(error) if is_of_values(error) => self.answered(),
            outcome => self.note_ours(outcome),
        }
    }

    /// The same for what oncebox does itself, which has to be done: any error is the end.
    pub(crate) fn note_ours<T>(&mut self, outcome: &Result<T>) {
        self.answered();
        if let Err(error) = outcome
            && self.ended.is_none()
        {
            self.ended = Some((class_of_driver(error), said(error)));
        }
    }

    /// The receipts of the batch are written. Those that a handler claims itself come later, and are its own business.
    pub(crate) fn leaves(&mut self, trace: Trace) {
        if self.events.is_some() && self.trace.is_none() {
            self.trace = Some(trace);
        }
    }

    /// What is to be looked for when the transaction did not end well; nothing if no handler can have committed.
    pub(crate) fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take().filter(|_| self.lent)
    }

    /// Whether something was in the way of an operation.
    pub(crate) fn was_refused(&self) -> bool {
        matches!(self.ended, Some((ErrorClass::Transient, _)))
    }

    /// Writes events, now or at the end.
    pub(crate) async fn write_events(&mut self, events: Vec<Document>) -> StoreResult<()> {
        match &mut self.events {
            Some(queued) => {
                queued.extend(events);
                Ok(())
            }
            None => {
                self.starting();
                let written = insert_events(&self.database, &mut self.session, events).await;
                self.answered();
                written
            }
        }
    }

    /// Everything that has to be there before the commit. The error says if the handler has ended the transaction.
    pub(crate) async fn finish(&mut self) -> StoreResult<()> {
        let doing = "committing";
        if let Some((class, error)) = self.ended.take() {
            let plain = "an operation has failed, and that ended the transaction; the handler must not go on after it";
            return Err(StoreError::new(class, doing, format!("{plain}. It was: {error}")).worded(plain));
        }
        if self.dropped || self.unanswered {
            return Err(StoreError::new(
                ErrorClass::Failed,
                doing,
                "an operation of the handler was dropped before its answer came, by a time-out or a `select!`: nobody knows \
                 whether it is part of the transaction. Let operations end",
            ));
        }
        if self.lent && self.is_open().await.is_err() {
            return Err(StoreError::new(
                ErrorClass::Failed,
                doing,
                "the handler has ended the transaction that oncebox began: leave commit and abort to oncebox",
            ));
        }
        self.flush().await.context_of_user("sending the writes that were queued")?;
        match self.events.as_mut().map(std::mem::take) {
            Some(events) if !events.is_empty() => {
                insert_events(&self.database, &mut self.session, events).await
            }
            _ => Ok(()),
        }
    }

    /// Whether the session has a transaction open; if not, what to do. The driver only says so when it is asked to begin another
    /// one, and then in the same way that there cannot be one: without a replica set, in a snapshot session, without acknowledged writes.
    pub(crate) async fn is_open(&mut self) -> std::result::Result<(), String> {
        let why = match self.session.start_transaction().await {
            Ok(()) => {
                if let Err(error) = self.session.abort_transaction().await {
                    tracing::debug!(%error, "an empty transaction was not aborted");
                }
                return Err("the session has no transaction: call `start_transaction` on it first".to_owned());
            }
            Err(error) => error,
        };
        // Inside of a transaction the driver lets nobody ask another member than the primary, and asks no server to say so.
        let anybody = SelectionCriteria::ReadPreference(ReadPreference::nearest(None));
        let asked = self.database.run_command(doc! { "ping": 1 }).selection_criteria(anybody);
        match asked.session(&mut self.session).await {
            Err(error) if matches!(error.kind.as_ref(), ErrorKind::Transaction { .. }) => Ok(()),
            _ => Err(format!(
                "the session has no transaction, and none can begin: {}. Transactions need a replica set (one member is enough: \
                 mongod --replSet rs0, rs.initiate() once in its shell), a session that is not a snapshot, and acknowledged writes",
                said(&why)
            )),
        }
    }
}

async fn insert_events(
    database: &Database,
    session: &mut ClientSession,
    mut events: Vec<Document>,
) -> StoreResult<()> {
    let first = counter::draw(database, counter::OUTBOX, events.len()).await?;
    for (event, seq) in events.iter_mut().zip(first..) {
        event.insert("_id", seq);
    }
    let outbox: Collection<Document> = database.collection("oncebox_outbox");
    outbox.insert_many(events).session(session).await.context("writing events")?;
    Ok(())
}
