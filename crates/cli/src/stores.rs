//! Whatever store the configuration names, behind one trait: commands are written once.

use std::future::Future;

use oncebox_core::config::{Handler, InboxConfig, PartitionReceipts, PayloadKind, StoreConfig, StoreKind};
use oncebox_core::inbox::Apply;
use oncebox_core::sql_handler::SqlHandlerError;
use oncebox_core::store::{Admin, ErrorClass, OutboxAdmin, Retention, StoreError, StoreResult};
use oncebox_postgres::PgStore;
use oncebox_sqlite::SqliteStore;

use crate::exit::Failure;

/// A store that can run SQL handlers from the configuration.
pub(crate) trait SqlStore: OutboxAdmin {
    /// The handler made of statements.
    type Handler: Apply<Self>;

    /// Checks the statements against the database and makes them ready.
    fn prepare(
        &self,
        handler: &Handler,
        payload: PayloadKind,
    ) -> impl Future<Output = StoreResult<Self::Handler>> + Send;

    /// What the configuration asks of the schema beyond migrations.
    fn arrange(&self, store: &StoreConfig) -> impl Future<Output = StoreResult<()>> + Send;
}

impl SqlStore for PgStore {
    type Handler = oncebox_postgres::SqlHandler;

    async fn prepare(&self, handler: &Handler, payload: PayloadKind) -> StoreResult<Self::Handler> {
        oncebox_postgres::SqlHandler::prepare(self, handler, payload).await.map_err(store_error)
    }

    async fn arrange(&self, store: &StoreConfig) -> StoreResult<()> {
        match store.partition_receipts {
            PartitionReceipts::Day => self.partition_receipts().await.map(|_| ()),
            PartitionReceipts::None => Ok(()),
        }
    }
}

impl SqlStore for SqliteStore {
    type Handler = oncebox_sqlite::SqlHandler;

    async fn prepare(&self, handler: &Handler, payload: PayloadKind) -> StoreResult<Self::Handler> {
        oncebox_sqlite::SqlHandler::prepare(self, handler, payload).await.map_err(store_error)
    }

    async fn arrange(&self, _store: &StoreConfig) -> StoreResult<()> {
        Ok(())
    }
}

fn store_error(error: SqlHandlerError) -> StoreError {
    match error {
        SqlHandlerError::Store(error) => error,
        wrong => StoreError::new(ErrorClass::Failed, "the SQL of the handler is wrong", wrong),
    }
}

/// A command that works with any store.
pub(crate) trait WithStore {
    /// What it returns.
    type Output;

    /// Runs it.
    fn run<S: SqlStore>(self, store: S) -> impl Future<Output = Self::Output>;
}

/// Opens the store and runs the command with it.
pub(crate) async fn with_store<C, T>(config: &StoreConfig, command: C) -> Result<T, Failure>
where
    C: WithStore<Output = Result<T, Failure>>,
{
    let url = config.url.expose();
    match config.kind {
        StoreKind::Postgres => {
            let by_day = config.partition_receipts == PartitionReceipts::Day;
            let store = PgStore::builder(url)
                .max_connections(config.max_connections)
                .partition_receipts(by_day)
                .connect()
                .await?;
            command.run(store).await
        }
        StoreKind::Sqlite => command.run(SqliteStore::connect(url).await?).await,
    }
}

/// For commands that only read or change what is in our tables.
pub(crate) async fn require_schema(store: &impl Admin) -> Result<(), Failure> {
    if store.migrations().await?.iter().all(|migration| migration.applied) {
        return Ok(());
    }
    Err(Failure::data("the database does not have the tables of this oncebox: run `oncebox migrate`"))
}

/// How long each consumer keeps its receipts.
pub(crate) fn retention(inboxes: &[InboxConfig]) -> Vec<Retention> {
    inboxes.iter().map(|i| Retention { consumer: i.consumer.clone(), keep: i.retention }).collect()
}
