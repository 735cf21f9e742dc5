//! One transaction, from START TRANSACTION to COMMIT: the hot path.

mod trace;

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use oncebox_core::error::Wording;
use oncebox_core::inbox::Selector;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Adopt, Advance, Claim, Claimed, ErrorClass, Store, StoreError, StoreResult};
use sqlx::mysql::MySqlTransactionManager;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySql, MySqlConnection, MySqlPool};
use sqlx_core::transaction::TransactionManager;

use crate::classify::{Context, DOES_NOT_EXIST, class_of_driver, number_of, torn};
use crate::options::CONNECTING;
use crate::session::OUR_DEPTH;
use crate::store::MysqlStore;
use crate::{adopted, claim, classify, position};
pub(crate) use trace::Trace;

/// How long a single connection is waited for that is only made to hear why there is none.
const TRY_LIMIT: Duration = Duration::from_secs(5);

impl Store for MysqlStore {
    type Conn = MySqlConnection;
    type Txn = MysqlTxn;

    fn adopted(&self) -> Option<&Adopt> {
        adopted::adopted(self)
    }

    fn further(&self) -> &[(String, Selector)] {
        adopted::further(self)
    }

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<MysqlTxn>> {
        self.patiently("claiming receipts", async {
            if let Some(table) = &self.inner.adopted {
                let mut txn =
                    if claims.is_empty() { self.begin().await? } else { self.begin_marked().await? };
                let (fresh, refused) = adopted::claim(self, table, &mut txn, consumer, claims).await?;
                return Ok(Claimed::adopted(txn, fresh, refused));
            }
            let mut txn = MysqlTxn::connect(&self.inner.pools.messages).await?;
            let claim::Found { fresh, collisions, fingerprints } =
                claim::claim(self, &mut txn, consumer, claims).await?;
            Ok(Claimed { txn, fresh, collisions, refused: Vec::new(), fingerprints })
        })
        .await
    }

    async fn claim_within(
        &self,
        conn: &mut MySqlConnection,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        match &self.inner.adopted {
            Some(table) => adopted::claim_within(self, table, conn, consumer, claims).await,
            None => claim::claim_within(conn, consumer, claims).await,
        }
    }

    async fn commit(&self, txn: MysqlTxn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        self.patiently("committing", txn.commit(self, advance.as_ref())).await
    }

    async fn rollback(&self, txn: MysqlTxn) {
        txn.rollback().await;
    }

    async fn undo(&self, txn: MysqlTxn) -> StoreResult<()> {
        txn.undo(self).await
    }

    fn wording(error: &(dyn std::error::Error + 'static), _class: ErrorClass) -> Option<Wording> {
        crate::wording::wording(error)
    }

    fn classify(error: &(dyn std::error::Error + 'static)) -> ErrorClass {
        classify::classify(error)
    }
}

impl MysqlStore {
    /// Opens a transaction for messages.
    pub(crate) async fn begin(&self) -> StoreResult<MysqlTxn> {
        self.begin_on(&self.inner.pools.messages).await
    }

    /// The same, and if somebody commits it before [`MysqlTxn::commit`] does, that is seen afterwards.
    async fn begin_marked(&self) -> StoreResult<MysqlTxn> {
        let (mark, write) = Trace::mark();
        let begin = format!("{}{write}", self.inner.begin);
        let mut txn = Self::begin_with(&self.inner.pools.messages, begin).await?;
        txn.leaves(mark);
        Ok(txn)
    }

    /// Opens a transaction on a connection that carries no messages.
    pub(crate) async fn begin_aside(&self) -> StoreResult<MysqlTxn> {
        self.begin_on(&self.inner.pools.aside).await
    }

    /// Opens a transaction like that in which a TIMESTAMP of the application is read and compared in UTC, whatever the URL says.
    pub(crate) async fn begin_in_utc(&self) -> StoreResult<MysqlTxn> {
        let begin = format!("{}SET SESSION time_zone = '+00:00'", self.inner.begin);
        Self::begin_with(&self.inner.pools.aside, begin).await
    }

    /// Opens a transaction for leases, which wait for nothing but each other.
    pub(crate) async fn begin_lease(&self) -> StoreResult<MysqlTxn> {
        self.begin_on(&self.inner.pools.lease).await
    }

    async fn begin_on(&self, pool: &MySqlPool) -> StoreResult<MysqlTxn> {
        Self::begin_with(pool, self.inner.begin.clone()).await
    }

    async fn begin_with(pool: &MySqlPool, begin: String) -> StoreResult<MysqlTxn> {
        let mut txn = MysqlTxn::connect(pool).await?;
        sqlx::raw_sql(AssertSqlSafe(begin))
            .execute(&mut *txn)
            .await
            .context_of_begin("beginning a transaction")?;
        Ok(txn)
    }

    /// Goes back to the database of the URL. A handler may have changed it, and our tables are there.
    pub(crate) fn after_handler(&self) -> &str {
        &self.inner.after_handler
    }
}

/// Fails with 1305 if this very transaction is over: handlers must not end it. The error ends the message, so COMMIT is not
/// reached, and what came after the end is undone.
const STILL_OPEN: &str = "RELEASE SAVEPOINT oncebox";

/// How long to wait for a rollback. Whatever is open ends with the connection, too.
const ROLLBACK_ANSWER: Duration = Duration::from_secs(5);

/// An open transaction. Handlers see it as their [`MySqlConnection`].
///
/// It is not an [`sqlx::Transaction`] because that one goes back to its pool when it is dropped, with a rollback still to
/// be sent. This one closes its connection unless it ended in good order, so nobody can ever inherit its state.
///
/// sqlx counts it all the same: a handler that calls `begin` on its connection gets a savepoint, and its `commit` does not
/// end the batch.
#[derive(Debug)]
pub struct MysqlTxn {
    conn: PoolConnection<MySql>,
    open: bool,
    /// What is there once it is committed.
    trace: Trace,
}

impl MysqlTxn {
    /// Takes a connection. The transaction begins with the first message that is sent.
    async fn connect(pool: &MySqlPool) -> StoreResult<Self> {
        // In a box: it has room for all that a new connection may need, and every call of the store would carry that along.
        let conn = match Box::pin(pool.acquire()).await {
            Err(sqlx::Error::PoolTimedOut) => return Err(Box::pin(why_none(pool)).await),
            acquired => acquired.context_of_begin(CONNECTING)?,
        };
        Ok(Self { conn, open: true, trace: Trace::None })
    }

    /// From now on a handler may run in it, and commit by itself: then this is left in the database.
    pub(crate) fn leaves(&mut self, trace: Trace) {
        self.trace = trace;
    }

    /// Moves the position and commits, in one round trip. A handler may have run in the transaction.
    async fn commit(mut self, store: &MysqlStore, advance: Option<&Advance<'_>>) -> StoreResult<()> {
        let doing = "committing";
        let mut last = store.after_handler().to_owned();
        for statement in [self.trace.removal(), advance.map(position::advance)].into_iter().flatten() {
            last.push_str("; ");
            last.push_str(&statement);
        }
        match self.try_commit_after(&last).await {
            // The answer is there, so the connection is, and can be asked whether the handler has committed before.
            Err(sqlx::Error::Database(_)) if self.was_committed(store).await => Err(torn(doing)),
            committed => committed.context_of_commit(doing),
        }
    }

    /// Commits a transaction that holds only statements of ours.
    pub(crate) async fn commit_own(self, doing: &str) -> StoreResult<()> {
        self.commit_after("DO 0").await.context(doing)
    }

    /// The one way to commit: runs `last` and commits, in one round trip. The server skips the rest of a message after an error.
    pub(crate) async fn commit_after(mut self, last: &str) -> sqlx::Result<()> {
        self.try_commit_after(last).await
    }

    async fn try_commit_after(&mut self, last: &str) -> sqlx::Result<()> {
        let message = format!("{last}; {STILL_OPEN}; COMMIT");
        sqlx::raw_sql(AssertSqlSafe(message)).execute(&mut *self.conn).await?;
        self.give_back();
        Ok(())
    }

    /// The connection may be used again, unless a handler has left a transaction of its own open.
    fn give_back(&mut self) {
        self.open = MySqlTransactionManager::get_transaction_depth(&self.conn) != OUR_DEPTH;
    }

    /// Undoes everything. If that fails the connection is closed, which undoes it too.
    pub(crate) async fn rollback(mut self) {
        let rolled_back = sqlx::raw_sql("ROLLBACK").execute(&mut *self.conn);
        if in_time(rolled_back).await.is_ok() {
            self.give_back();
        }
    }

    /// The same after a handler has run: it may have committed what is to be undone.
    async fn undo(mut self, store: &MysqlStore) -> StoreResult<()> {
        // In the transaction that the store began there is its savepoint.
        let undo = "ROLLBACK TO SAVEPOINT oncebox; ROLLBACK";
        match in_time(sqlx::raw_sql(undo).execute(&mut *self.conn)).await {
            Ok(_) => self.give_back(),
            Err(Some(DOES_NOT_EXIST)) if self.was_committed(store).await => return Err(torn("rolling back")),
            Err(_) => {}
        }
        Ok(())
    }

    /// Undoes what is open, and says whether somebody else than the store has committed this transaction before.
    async fn was_committed(&mut self, store: &MysqlStore) -> bool {
        let Some(question) = self.trace.question() else { return false };
        let message = format!("{}; ROLLBACK; {question}; ROLLBACK", store.after_handler());
        let answer = in_time(sqlx::raw_sql(AssertSqlSafe(message)).fetch_all(&mut *self.conn)).await;
        let Ok(answer) = answer else { return false };
        let committed = self.trace.is_in(&answer);
        if !committed {
            self.give_back();
        } else if let Some(removal) = self.trace.removal() {
            let message = format!("{removal}; COMMIT");
            // If that fails, a row stays behind that nobody looks at.
            in_time(sqlx::raw_sql(AssertSqlSafe(message)).execute(&mut *self.conn)).await.ok();
        }
        committed
    }
}

/// Waits for the answer to a rollback; the error is the server's number, if it has said one. A handler that was dropped in the middle of a statement may have left the
/// driver waiting for what will never come, and whoever runs the batch again should not wait along.
async fn in_time<T>(answer: impl Future<Output = sqlx::Result<T>>) -> Result<T, Option<u16>> {
    match tokio::time::timeout(ROLLBACK_ANSWER, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            tracing::debug!(class = ?class_of_driver(&error), %error, "rollback failed, closing the connection");
            Err(number_of(&error))
        }
        Err(_) => {
            tracing::debug!("no answer to a rollback, closing the connection");
            Err(None)
        }
    }
}

impl Deref for MysqlTxn {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.conn
    }
}

impl DerefMut for MysqlTxn {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.conn
    }
}

impl Drop for MysqlTxn {
    fn drop(&mut self) {
        if self.open {
            self.conn.close_on_drop();
        }
    }
}

/// Why a pool has no connection to give. It only says that it waited; one connection of our own says more.
async fn why_none(pool: &MySqlPool) -> StoreError {
    let tried = async {
        let connection = pool.connect_options().connect().await.context_of_begin(CONNECTING)?;
        connection.close().await.ok();
        StoreResult::Ok(())
    };
    let tried = tokio::time::timeout(TRY_LIMIT, tried).await.ok();
    StoreError::no_connection(CONNECTING, pool.options().get_max_connections(), tried)
}
