//! What oncebox needs from a database: one trait for each concern, and in every store one file for each trait.
//!
//! [`Store`] is the hot path, one transaction per batch. Around it are [`Positions`], [`DeadLetters`], [`Purge`] and [`Pauses`];
//! all five together are an [`InboxStore`], which an inbox runs on. [`Outbox`] is what a relay needs. [`Migrate`], [`Check`],
//! [`Status`], [`Find`] and [`Audit`] are for those who look after the database; with the rest they are [`Admin`] and
//! [`OutboxAdmin`].
//!
//! Until 1.0 only the stores of this project implement them, and the conformance suite in `oncebox-testkit` says what they
//! must do.

mod adopt;
mod audit;
mod check;
mod dead;
mod duplicates;
mod error;
mod error_group;
mod find;
pub mod headers_json;
mod migrate;
mod outbox;
mod pause;
mod position;
mod purge;
mod status;

use std::error::Error;
use std::future::Future;
use std::ops::DerefMut;

pub use adopt::{
    Adopt, AdoptError, AdoptedBatch, AdoptedRow, AdoptedUse, Adopting, CopiedPage, CopiedReceipt, CopyFrom,
    FoundColumn, FoundTable, IdFormat, IdKind, Met, PageMark, StoredId, Switched,
};
pub use audit::{Action, ActionNote, Audit, AuditEntry, AuditFilter};
pub use check::{Check, Finding, FindingLevel};
pub use dead::{
    DeadFilter, DeadGroup, DeadLetter, DeadLetters, DeadSummary, LetterContent, LetterEdit,
    MAX_KEYED_LETTERS, MAX_SUMMARY_BYTES, StoredDeadLetter,
};
pub use duplicates::{Cause, Duplicates};
pub use error::{ErrorClass, StoreError, StoreResult};
pub use error_group::{error_group, group_prefix};
pub use find::{Find, FoundReceipt};
pub use migrate::{Migrate, Migration, refuse_newer};
pub use outbox::{
    CausedEvents, Deliveries, EventFilter, EventState, HeldEvent, Lease, Leases, Outbox, OutboxAdmin,
    OutboxEntry, OutboxStatus, ParkedEvent, READY_TOPICS, Ready, SHARDS, ShardStatus, StoredEvent, Sweep,
};
pub use pause::{MAX_PAUSES, Pause, PauseNote, Pauses};
pub use position::{Advance, Ownership, PositionKey, Positions, Progress};
pub use purge::{PassEnd, Purge, PurgePass, PurgeProgress, Purged, Retention};
pub use status::{ConsumerStatus, PositionStatus, Status, StoreStatus};

use crate::error::Wording;
use crate::inbox::{Fingerprint, ReceiptKey, Selector};
use crate::message::Record;
use crate::names::ConsumerName;

/// A receipt that a batch wants to write.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The unique key.
    pub key: ReceiptKey,
    /// The tenant, `""` when none.
    pub tenant: &'a str,
    /// The message id.
    pub message_id: &'a str,
    /// What the further columns of a receipt get, in the order of [`Store::further`]; empty without them.
    pub set: &'a [Option<String>],
    /// Kept with the receipt where payloads are compared. An adopted table has no column for it, and gets none.
    pub fingerprint: Option<Fingerprint>,
}

/// A claim that a store cannot take as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its index.
    pub at: usize,
    /// Why, for the dead letter.
    pub why: String,
}

/// An open transaction with its receipts written.
#[derive(Debug)]
pub struct Claimed<T> {
    /// The transaction; dropping it undoes everything.
    pub txn: T,
    /// For each claim, in the order given: true if no receipt existed.
    pub fresh: Vec<bool>,
    /// The indexes of claims that are not fresh although their message was never applied: the receipt with their key
    /// belongs to another message. Nobody meets that by accident.
    pub collisions: Vec<usize>,
    /// Claims that an adopted table cannot hold, or takes for another message. Not fresh, never applied, without a receipt.
    pub refused: Vec<Refused>,
    /// The fingerprints that receipts have which were there before: of claims, by their indexes, that have one themselves and
    /// found the receipt of their message. Those of receipts that were written without one are left out.
    pub fingerprints: Vec<(usize, Fingerprint)>,
}

impl<T> Claimed<T> {
    /// What claims find in an adopted table, which has no keys and no fingerprints of ours.
    pub fn adopted(txn: T, fresh: Vec<bool>, refused: Vec<Refused>) -> Self {
        Self { txn, fresh, collisions: Vec::new(), refused, fingerprints: Vec::new() }
    }
}

/// The hot path of a database.
///
/// Invariants every store keeps:
/// - receipts, the handler's effect and the position commit together or not at all; where a handler can commit by itself, that
///   is found out when the transaction ends, and said as [`ErrorClass::Torn`];
/// - a receipt that exists only in another open transaction is waited for, never guessed about;
/// - a transaction that is dropped, or whose state is unknown, closes its connection instead of returning it to a pool;
/// - waits are bounded by the server's own settings, not by dropping futures.
pub trait Store: Clone + Send + Sync + 'static {
    /// What handlers get: the driver's connection, inside the transaction.
    type Conn: Send;

    /// An open transaction.
    type Txn: DerefMut<Target = Self::Conn> + Send;

    /// The application's own table that holds the receipts, if there is one.
    fn adopted(&self) -> Option<&Adopt> {
        None
    }

    /// The further columns of a receipt, and what of its message they hold: those of an adopted table, or what the store was
    /// told to keep.
    fn further(&self) -> &[(String, Selector)] {
        self.adopted().map_or(&[], Adopt::further)
    }

    /// Opens a transaction and writes the receipts. It is one step because in some databases (MongoDB) a duplicate
    /// aborts the transaction, and only the store can begin anew without it. The keys are distinct.
    fn claim(
        &self,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> impl Future<Output = StoreResult<Claimed<Self::Txn>>> + Send;

    /// Writes receipts inside a transaction that somebody else began and will commit: the bare claim. In a database where
    /// a duplicate aborts the transaction this may be an error that says so.
    fn claim_within(
        &self,
        conn: &mut Self::Conn,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> impl Future<Output = StoreResult<Vec<bool>>> + Send;

    /// Moves the position, checked against the owner's epoch, and commits. `None` for sources without positions.
    fn commit(
        &self,
        txn: Self::Txn,
        advance: Option<Advance<'_>>,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Undoes the transaction and makes its connection usable again. No handler has run in it.
    fn rollback(&self, txn: Self::Txn) -> impl Future<Output = ()> + Send;

    /// [`Store::rollback`] after a handler has run.
    ///
    /// # Errors
    /// Only [`ErrorClass::Torn`]: the handler had committed by itself, so its receipts are there although the rest is undone.
    fn undo(&self, txn: Self::Txn) -> impl Future<Output = StoreResult<()>> + Send;

    /// Tells apart what a handler or a statement returned, looking through its causes.
    fn classify(error: &(dyn Error + 'static)) -> ErrorClass;

    /// How an error of the driver reads, with and without values; `None` for any other error. `class` is what
    /// [`Store::classify`] said of it.
    fn wording(_error: &(dyn Error + 'static), _class: ErrorClass) -> Option<Wording> {
        None
    }
}

/// What the further columns of a receipt get from this message; nothing where it has nothing. See [`Store::further`].
pub fn further_values<S: Store>(store: &S, record: &Record) -> Vec<Option<String>> {
    store.further().iter().map(|(_, selector)| selector.select(record).ok()).collect()
}

/// A database that an inbox can run on.
pub trait InboxStore: Store + Positions + DeadLetters + Purge + Pauses {}

impl<S: Store + Positions + DeadLetters + Purge + Pauses> InboxStore for S {}

/// A database that can be looked after: everything but the outbox. Never on the hot path.
pub trait Admin: InboxStore + Migrate + Check + Status + Audit + Find {}

impl<S: InboxStore + Migrate + Check + Status + Audit + Find> Admin for S {}
