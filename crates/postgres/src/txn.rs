//! One transaction, from BEGIN to COMMIT: the hot path.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use oncebox_core::error::Wording;
use oncebox_core::inbox::Selector;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Adopt, Advance, Claim, Claimed, ErrorClass, Store, StoreError, StoreResult};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool, Postgres, Row, SqlSafeStr, SqlStr,
};
use sqlx_core::transaction::TransactionManager;

use crate::classify::{Context, class_of_driver};
use crate::store::PgStore;
use crate::{adopted, claim, classify, position};

const CONNECTING: &str = "connecting to PostgreSQL";
/// How long a single connection is waited for that is only made to hear why there is none.
const TRY_LIMIT: Duration = Duration::from_secs(5);

impl Store for PgStore {
    type Conn = PgConnection;
    type Txn = PgTxn;

    fn adopted(&self) -> Option<&Adopt> {
        adopted::adopted(self)
    }

    fn further(&self) -> &[(String, Selector)] {
        adopted::further(self)
    }

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<PgTxn>> {
        self.patiently("claiming receipts", async {
            let mut txn = self.begin().await?;
            if let Some(table) = &self.inner.adopted {
                let (fresh, refused) = adopted::claim(self, table, &mut txn, consumer, claims).await?;
                return Ok(Claimed::adopted(txn, fresh, refused));
            }
            let claim::Found { fresh, collisions, fingerprints } =
                claim::claim(self, &mut txn, consumer, claims).await?;
            Ok(Claimed { txn, fresh, collisions, refused: Vec::new(), fingerprints })
        })
        .await
    }

    async fn claim_within(
        &self,
        conn: &mut PgConnection,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        match &self.inner.adopted {
            Some(table) => adopted::claim_within(self, table, conn, consumer, claims).await,
            None => claim::claim_within(self, conn, consumer, claims).await,
        }
    }

    async fn commit(&self, txn: PgTxn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        self.patiently("committing", txn.commit(advance.as_ref())).await
    }

    async fn undo(&self, mut txn: PgTxn) -> StoreResult<()> {
        let doing = "rolling back";
        // Without an answer there is nobody who could tell, and with the connection all that was open is gone.
        match self.patiently(doing, async { Ok(txn.was_committed().await) }).await {
            Ok(true) => Err(torn(doing)),
            _ => Ok(()),
        }
    }

    async fn rollback(&self, txn: PgTxn) {
        // Its error is a lost connection, and that is a rollback too.
        let rolled_back = async {
            txn.rollback().await;
            Ok(())
        };
        if let Err(error) = self.patiently("rolling back", rolled_back).await {
            tracing::debug!(%error, "closed the connection instead");
        }
    }

    fn wording(error: &(dyn std::error::Error + 'static), _class: ErrorClass) -> Option<Wording> {
        crate::wording::wording(error)
    }

    fn classify(error: &(dyn std::error::Error + 'static)) -> ErrorClass {
        classify::classify(error)
    }
}

impl PgStore {
    /// Opens a transaction for messages.
    pub(crate) async fn begin(&self) -> StoreResult<PgTxn> {
        PgTxn::begin(&self.inner.pools.messages, self.inner.begin.clone()).await
    }

    /// Opens a transaction for a relay's reading and for what became of its deliveries.
    pub(crate) async fn begin_relay(&self) -> StoreResult<PgTxn> {
        PgTxn::begin(&self.inner.pools.messages, self.inner.begin_relay.clone()).await
    }

    /// Opens a transaction on a connection that carries no messages.
    pub(crate) async fn begin_aside(&self) -> StoreResult<PgTxn> {
        PgTxn::begin(&self.inner.pools.aside, self.inner.begin.clone()).await
    }

    /// Opens a transaction for leases, which wait for nothing but each other.
    pub(crate) async fn begin_lease(&self) -> StoreResult<PgTxn> {
        PgTxn::begin(&self.inner.pools.lease, self.inner.begin.clone()).await
    }
}

/// Ends a message that has nothing else to fail in an aborted transaction, or in none.
pub(crate) const STILL_OPEN: &str = "SELECT oncebox_still_open()";

/// Puts back the role and the search path that the transaction began with. A handler may change both, and our statements need
/// neither its rights nor its schema. Not only for this transaction: a handler that has set them for the session must not
/// leave them to the next one. Deferred constraints speak up before, with what the handler has set.
pub(crate) const AFTER_HANDLER: &str = "SET CONSTRAINTS ALL IMMEDIATE; \
     SELECT pg_catalog.set_config('role', s.role, false), pg_catalog.set_config('search_path', s.path, false) \
     FROM (SELECT pg_catalog.current_setting('oncebox.role', true) AS role, \
         pg_catalog.current_setting('oncebox.search_path', true) AS path) AS s \
     WHERE s.path <> '' AND (s.role <> pg_catalog.current_setting('role') \
         OR s.path <> pg_catalog.current_setting('search_path'))";

/// An open transaction. Handlers see it as their [`PgConnection`].
///
/// It is not an [`sqlx::Transaction`] because that one goes back to its pool when it is dropped, with a rollback still to
/// be sent. This one closes its connection unless it ended in good order, so nobody can ever inherit its state.
///
/// sqlx is told about the transaction all the same: a handler that calls `begin` on its connection gets a savepoint, and
/// its `commit` does not end the batch.
#[derive(Debug)]
pub struct PgTxn {
    conn: PoolConnection<Postgres>,
    open: bool,
}

impl PgTxn {
    /// Takes a connection and sends `begin`: BEGIN and its SET LOCALs in one message.
    pub(crate) async fn begin(pool: &PgPool, begin: SqlStr) -> StoreResult<Self> {
        // In a box: it has room for all that a new connection may need, and every call of the store would carry that along.
        let conn = match Box::pin(pool.acquire()).await {
            Err(sqlx::Error::PoolTimedOut) => return Err(Box::pin(why_none(pool)).await),
            acquired => acquired.context_of_begin(CONNECTING)?,
        };
        let mut txn = Self { conn, open: true };
        PgTransactionManager::begin(&mut txn.conn, Some(begin))
            .await
            .context_of_begin("beginning a transaction")?;
        Ok(txn)
    }

    /// Moves the position and commits, in one round trip. A handler may have run in the transaction.
    pub(crate) async fn commit(self, advance: Option<&Advance<'_>>) -> StoreResult<()> {
        let doing = "committing";
        let last = match advance {
            Some(advance) => format!("{AFTER_HANDLER}; {}", position::advance(advance, doing)?),
            None => format!("{AFTER_HANDLER}; {STILL_OPEN}"),
        };
        let mut txn = self;
        match txn.try_commit_after(&last).await {
            // The answer is there, so the connection is, and knows whether the handler has committed before.
            Err(sqlx::Error::Database(_)) if txn.was_committed().await => Err(torn(doing)),
            // A deferred constraint of the application speaks up only now, so the error may well be the message's.
            committed => committed.context_of_commit(doing),
        }
    }

    /// Commits a transaction that holds only statements of ours.
    pub(crate) async fn commit_own(self, doing: &str) -> StoreResult<()> {
        self.commit_after(STILL_OPEN).await.context(doing)
    }

    /// The same where tables are made.
    pub(crate) async fn commit_ddl(self, doing: &str) -> StoreResult<()> {
        self.commit_after(STILL_OPEN).await.context_of_ddl(doing)
    }

    /// The one way to commit: runs `last` and commits, in one round trip. PostgreSQL skips the rest of a message after an
    /// error, so `last` must hold a statement that fails in an aborted transaction: COMMIT itself would answer with a
    /// friendly ROLLBACK.
    pub(crate) async fn commit_after(mut self, last: &str) -> sqlx::Result<()> {
        self.try_commit_after(last).await
    }

    async fn try_commit_after(&mut self, last: &str) -> sqlx::Result<()> {
        // sqlx still counts one open transaction after this, and only its own COMMIT or ROLLBACK would change that. So the
        // message opens an empty transaction behind ours, and its ROLLBACK travels with the check that the pool makes
        // when the connection comes back.
        let message = format!("{last}; SET oncebox.began = ''; COMMIT; BEGIN");
        sqlx::raw_sql(AssertSqlSafe(message)).execute(&mut *self.conn).await?;
        self.give_back();
        Ok(())
    }

    /// The connection may be used again: all that is open on it is an empty transaction, if sqlx sees it so, too.
    fn give_back(&mut self) {
        if PgTransactionManager::get_transaction_depth(&self.conn) == 1 {
            PgTransactionManager::start_rollback(&mut self.conn);
            self.open = false;
        }
    }

    /// Undoes what is open, and says whether somebody else than the store has committed this transaction before.
    async fn was_committed(&mut self) -> bool {
        // As after a commit, an empty transaction is left to the pool.
        let undo = "ROLLBACK; SELECT pg_catalog.current_setting('oncebox.began', true); BEGIN";
        let rows = match sqlx::raw_sql(undo).fetch_all(&mut *self.conn).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::debug!(class = ?class_of_driver(&error), %error, "rollback failed, closing the connection");
                return false;
            }
        };
        let began = rows.first().and_then(|row| row.try_get::<Option<String>, _>(0).ok().flatten());
        let committed = began.as_deref() == Some("yes");
        // What a handler has set and committed is nobody else's business.
        if !committed {
            self.give_back();
        }
        committed
    }

    /// Undoes everything. If that fails the connection is closed, which undoes it too.
    pub(crate) async fn rollback(mut self) {
        if PgTransactionManager::get_transaction_depth(&self.conn) != 1 {
            return;
        }
        match PgTransactionManager::rollback(&mut self.conn).await {
            Ok(()) => self.open = false,
            Err(error) => {
                tracing::debug!(class = ?class_of_driver(&error), %error, "rollback failed, closing the connection");
            }
        }
    }
}

impl Deref for PgTxn {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.conn
    }
}

impl DerefMut for PgTxn {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.conn
    }
}

impl Drop for PgTxn {
    fn drop(&mut self) {
        if self.open {
            self.conn.close_on_drop();
        }
    }
}

fn torn(doing: &str) -> StoreError {
    let why = "the handler has committed the transaction that oncebox began, with the receipts of the batch: what stood before \
               is committed, and what came after may not be. Leave COMMIT alone, and use a savepoint (`begin` on the connection)";
    StoreError::new(ErrorClass::Torn, doing, why)
}

/// The message that opens a transaction.
///
/// The isolation level is spelled out because the claim relies on READ COMMITTED, whatever the server's default is. READ
/// WRITE is not: `default_transaction_read_only` is how operators stop a primary, and we wait until it is over.
/// `oncebox.open` is there as long as this very transaction is: `oncebox_advance` looks for it. `oncebox.began` outlives it, but
/// only if it is committed, and the store's own commit empties it: see [`PgTxn::was_committed`]. The role and the search path
/// are written down for [`AFTER_HANDLER`].
pub(crate) fn begin_message(settings: &[(&str, String)]) -> SqlStr {
    let mut message = String::from(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_catalog.set_config('oncebox.open', 'yes', true), \
         pg_catalog.set_config('oncebox.began', 'yes', false), \
         pg_catalog.set_config('oncebox.role', pg_catalog.current_setting('role'), true), \
         pg_catalog.set_config('oncebox.search_path', pg_catalog.current_setting('search_path'), true)",
    );
    for (name, value) in settings {
        message.push_str(&format!(", pg_catalog.set_config('{name}', '{value}', true)"));
    }
    AssertSqlSafe(message).into_sql_str()
}

/// Why a pool has no connection to give. It only says that it waited; one connection of our own says more.
async fn why_none(pool: &PgPool) -> StoreError {
    let tried = async {
        let connection = pool.connect_options().connect().await.context_of_begin(CONNECTING)?;
        connection.close().await.ok();
        StoreResult::Ok(())
    };
    let tried = tokio::time::timeout(TRY_LIMIT, tried).await.ok();
    StoreError::no_connection(CONNECTING, pool.options().get_max_connections(), tried)
}
