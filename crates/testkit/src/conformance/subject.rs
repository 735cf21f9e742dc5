//! What the suite needs to know about a store.

use std::future::Future;
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::{OutboxAdmin, Store};

/// How a property ends.
pub type Verdict = Result<(), BoxError>;

/// The connection that a store hands to handlers.
pub type Conn<T> = <<T as Subject>::Store as Store>::Conn;

/// A query that a sweep runs over the table of effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepQuery {
    /// A row for each id, ordered by it: `id`, how often it is there as `n`, and `gone`, which is null.
    EachId,
    /// A row for each effect, with its `id`.
    EachEffect,
    /// One that the database refuses with an error that says `missing`.
    Refused,
    /// One that reads `no_such_table`.
    OfNoTable,
}

impl SweepQuery {
    /// The query for a database that speaks SQL.
    #[must_use]
    pub fn sql(self) -> &'static str {
        match self {
            Self::EachId => "SELECT id, count(*) AS n, NULL AS gone FROM effects GROUP BY id ORDER BY id",
            Self::EachEffect => "SELECT id FROM effects",
            Self::Refused => "SELECT id, missing FROM effects",
            Self::OfNoTable => "SELECT id FROM no_such_table",
        }
    }
}

/// An empty database of its own, with a table of effects in it, and the store under test.
pub trait Subject: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: OutboxAdmin;

    /// A new database with the table of effects, which takes the same id more than once, and without oncebox's tables.
    fn start() -> impl Future<Output = Result<Self, BoxError>> + Send;

    /// A store with connections of its own, as another process would have them.
    fn connect(&self) -> impl Future<Output = Result<Self::Store, BoxError>> + Send;

    /// A connection outside of any transaction, as an application has it.
    fn connection(&self) -> impl Future<Output = Result<Conn<Self>, BoxError>> + Send;

    /// What a handler does: appends this id to the effects.
    fn add_effect(conn: &mut Conn<Self>, id: &str) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// The query in the language of the database: SQL, unless the subject says otherwise.
    #[must_use]
    fn sweep_query(query: SweepQuery) -> String {
        query.sql().to_owned()
    }

    /// Runs a statement that violates a unique constraint, and returns the driver's error.
    fn violate_unique(conn: &mut Conn<Self>) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// The committed effects in the order in which they were added.
    fn effects(&self) -> impl Future<Output = Result<Vec<String>, BoxError>> + Send;

    /// The message ids of the committed receipts of a consumer, sorted.
    fn receipts(&self, consumer: &str) -> impl Future<Output = Result<Vec<String>, BoxError>> + Send;

    /// Makes the receipts that a consumer has now older.
    fn age_receipts(&self, consumer: &str, by: Duration)
    -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Moves the times of a consumer's positions into the past: the last progress, and until when they are caught up.
    fn age_positions(
        &self,
        consumer: &str,
        by: Duration,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Takes the groups away from all dead letters, as if an older oncebox had written them.
    fn forget_groups(&self) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Lets a purger's claim to be the only one run out, as if it had not been heard of for long. Does nothing if there is
    /// none.
    fn expire_purger(&self) -> impl Future<Output = Result<(), BoxError>> + Send;
}
