//! Whatever store the configuration names, behind one trait: commands are written once.

use std::future::Future;
use std::time::Duration;

use oncebox_config::{self as config, HandlerConfig, InboxConfig, PartitionReceipts, StoreConfig, StoreKind};
use oncebox_core::inbox::Apply;
use oncebox_core::store::{
    Admin, AdoptedUse, Adopting, ErrorClass, Finding, OutboxAdmin, Retention, StoreError, StoreResult,
};
use oncebox_mongodb::MongoStore;
use oncebox_mongodb::operations::{Operations, OperationsError, OperationsHandler};
use oncebox_mysql::MysqlStore;
use oncebox_postgres::PgStore;
use oncebox_sql::{SqlHandlerError, SqlStore};
use oncebox_sqlite::SqliteStore;

use crate::exit::Failure;

/// A store that the configuration can name.
pub(crate) trait ConfiguredStore: OutboxAdmin + Adopting {
    /// What begins a comment in a script of its migrations; without one the script is JSON.
    const COMMENT: Option<&'static str> = Some("--");

    /// A handler that the configuration describes.
    type Handler: Apply<Self>;

    /// The handler of an inbox, checked against the database.
    fn handler(&self, inbox: &InboxConfig) -> impl Future<Output = StoreResult<Self::Handler>> + Send;

    /// What the configuration asks of the schema beyond migrations.
    fn arrange(&self, store: &StoreConfig) -> impl Future<Output = StoreResult<()>> + Send;
}

impl ConfiguredStore for MongoStore {
    const COMMENT: Option<&'static str> = None;

    type Handler = OperationsHandler;

    async fn handler(&self, inbox: &InboxConfig) -> StoreResult<Self::Handler> {
        let HandlerConfig::Operations(list) = &inbox.handler else { return Err(in_the_wrong_language()) };
        let operations = match list {
            config::Operations::Each(list) => Operations::each(list, inbox.payload),
            config::Operations::Batch(list) => Operations::batch(list, inbox.payload),
        };
        let operations = operations.map_err(OperationsError::into_store_error)?;
        OperationsHandler::prepare(self, operations).await.map_err(OperationsError::into_store_error)
    }

    async fn arrange(&self, _store: &StoreConfig) -> StoreResult<()> {
        Ok(())
    }
}

impl ConfiguredStore for MysqlStore {
    type Handler = <Self as SqlStore>::Handler;

    async fn handler(&self, inbox: &InboxConfig) -> StoreResult<Self::Handler> {
        in_sql(self, inbox).await
    }

    async fn arrange(&self, _store: &StoreConfig) -> StoreResult<()> {
        Ok(())
    }
}

impl ConfiguredStore for PgStore {
    type Handler = <Self as SqlStore>::Handler;

    async fn handler(&self, inbox: &InboxConfig) -> StoreResult<Self::Handler> {
        in_sql(self, inbox).await
    }

    async fn arrange(&self, store: &StoreConfig) -> StoreResult<()> {
        match store.partition_receipts {
            PartitionReceipts::Day => self.partition_receipts().await.map(|_| ()),
            PartitionReceipts::None => Ok(()),
        }
    }
}

impl ConfiguredStore for SqliteStore {
    type Handler = <Self as SqlStore>::Handler;

    async fn handler(&self, inbox: &InboxConfig) -> StoreResult<Self::Handler> {
        in_sql(self, inbox).await
    }

    async fn arrange(&self, _store: &StoreConfig) -> StoreResult<()> {
        Ok(())
    }
}

/// A handler written in SQL.
async fn in_sql<S: SqlStore>(store: &S, inbox: &InboxConfig) -> StoreResult<S::Handler> {
    let HandlerConfig::Sql(handler) = &inbox.handler else { return Err(in_the_wrong_language()) };
    store.prepare(handler, inbox.payload).await.map_err(SqlHandlerError::into_store_error)
}

/// The reader of the configuration refuses it, with its line.
fn in_the_wrong_language() -> StoreError {
    StoreError::new(ErrorClass::Failed, "reading the handler", "it is not in the language of the store")
}

/// What the mapping of an adopted table lacks for these inboxes. Nothing if no table is adopted.
pub(crate) async fn check_adopted(
    store: &impl Adopting,
    inboxes: &[InboxConfig],
) -> StoreResult<Vec<Finding>> {
    let tenants = inboxes.iter().any(|inbox| inbox.identity.tenant.is_some());
    let longest_consumer =
        inboxes.iter().map(|inbox| inbox.consumer.as_str().chars().count()).max().unwrap_or_default();
    store.check_adopted(AdoptedUse { consumers: inboxes.len(), tenants, longest_consumer }).await
}

/// A command that works with any store.
pub(crate) trait WithStore {
    /// What it returns.
    type Output;

    /// Whether it may make a database that is a file and is not there.
    const MAKES_FILE: bool = false;

    /// The longest that a statement may take, where the server can be told; the store's own limit unless given.
    const STATEMENT_LIMIT: Option<Duration> = None;

    /// Runs it.
    fn run<S: ConfiguredStore>(self, store: S) -> impl Future<Output = Self::Output>;
}

/// Opens the store and runs the command with it.
pub(crate) async fn with_store<C, T>(config: &StoreConfig, command: C) -> Result<T, Failure>
where
    C: WithStore<Output = Result<T, Failure>>,
{
    let url = config.url.expose();
    match config.kind {
        StoreKind::Mongodb => {
            let mut builder = MongoStore::builder(url);
            if let Some(most) = config.max_connections {
                builder = builder.max_connections(most);
            }
            if let Some(adopt) = &config.adopt {
                builder = builder.adopt(adopt.clone());
            }
            if let Some(selector) = &config.event_type {
                builder = builder.event_type(selector.clone());
            }
            // In a box: it has room for all that the driver may need.
            Box::pin(command.run(builder.connect().await?)).await
        }
        StoreKind::Mysql => {
            let mut builder = MysqlStore::builder(url);
            if let Some(most) = config.max_connections {
                builder = builder.max_connections(most);
            }
            if let Some(adopt) = &config.adopt {
                builder = builder.adopt(adopt.clone());
            }
            if let Some(limit) = C::STATEMENT_LIMIT {
                builder = builder.statement_timeout(limit);
            }
            command.run(builder.connect().await?).await
        }
        StoreKind::Postgres => {
            let by_day = config.partition_receipts == PartitionReceipts::Day;
            let mut builder = PgStore::builder(url).partition_receipts(by_day);
            if let Some(most) = config.max_connections {
                builder = builder.max_connections(most);
            }
            if let Some(adopt) = &config.adopt {
                builder = builder.adopt(adopt.clone());
            }
            if let Some(limit) = C::STATEMENT_LIMIT {
                builder = builder.statement_timeout(limit);
            }
            command.run(builder.connect().await?).await
        }
        StoreKind::Sqlite => {
            let mut builder = SqliteStore::builder(url);
            if !C::MAKES_FILE {
                builder = builder.existing();
            }
            if let Some(adopt) = &config.adopt {
                builder = builder.adopt(adopt.clone());
            }
            command.run(builder.connect().await?).await
        }
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
