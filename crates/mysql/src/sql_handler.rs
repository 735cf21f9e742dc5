//! Handlers written in SQL.

mod batch;
mod block;
mod body;
mod dialect;
mod events;
mod failure;
mod json;
mod messages;
mod names;
mod probe;
mod procedure;
mod render;
mod routine;
mod server;
mod table;
mod text;
mod texts;
mod values;

use std::fmt;

use oncebox_core::inbox::{Apply, Failure};
use oncebox_core::message::Message;
use oncebox_core::outbox::events_written;
use oncebox_sql::{Handler, Param, PayloadKind, Sql, SqlHandlerError, SqlStore, StatementError, Step};
use sqlx::MySqlConnection;

use crate::classify::number_of;
use crate::store::MysqlStore;
use batch::Batch;
use block::Block;
use body::Parts;
use failure::Sources;
use probe::{Rendered, typed};
use procedure::Procedure;
use server::Server;
use texts::Texts;
use values::{Values, Wanted};

/// A handler of SQL statements. All of them run on the server, in one round trip per batch.
///
/// `each`: for every message, in order, the statements in order. `batch`: every statement once, over the relation
/// `messages`. `:payload` is text (`json`, `text`) or a blob (`bytes`); `:headers` is the text of a JSON object; `:timestamp`
/// is a `DATETIME(3)` in UTC. Text is `utf8mb4_bin`: it is compared byte by byte, whatever the column would do.
///
/// Statements that call `oncebox_emit` write events. Those of `each` know the message that they follow from.
///
/// A message is rejected, without another attempt, if a statement touches another number of rows than its rule allows, or
/// if a statement uses something of it that is not what it should be: a payload that is not JSON, a key that is not text.
/// Rows that an UPDATE finds count, whether it changes them or not; a row that ON DUPLICATE KEY UPDATE changes counts twice.
pub struct SqlHandler {
    store: MysqlStore,
    plan: Plan,
    sources: Sources,
    writes_events: bool,
}

#[derive(Debug)]
enum Plan {
    Block(Block),
    Procedure(Procedure),
    Texts(Texts),
    Batch(Batch),
}

impl fmt::Debug for SqlHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlHandler")
            .field("statements", &self.sources.texts().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl SqlHandler {
    /// Checks all statements against the database and makes the handler ready.
    ///
    /// # Errors
    /// [`SqlHandlerError::Statements`] lists every statement that the database refuses, with its number and the reason. If
    /// all of them are refused for what the database lacks (a table, a right), it is the source of an
    /// [`SqlHandlerError::Store`] of the class [`ErrorClass::Environment`](oncebox_core::store::ErrorClass::Environment): it may be mended, and is worth another try.
    pub async fn prepare(
        store: &MysqlStore,
        handler: &Handler,
        payload: PayloadKind,
    ) -> Result<Self, SqlHandlerError> {
        let steps = handler.steps();
        let writes_events = events::are_written(handler);
        let mut txn = store.begin_aside().await?;
        let server = Server::ask(&mut txn).await?;
        let levels = if server.is_mariadb { json::LEVELS_OF_MARIADB } else { json::LEVELS_OF_MYSQL };
        let plan = match handler {
            Handler::Each(_) => {
                let wanted = Wanted { used: used(steps, writes_events), payload, levels };
                let rendered: Vec<_> = steps
                    .iter()
                    .map(|step| rendered(step, |sql| Ok(render::render(sql, |param| typed(param, payload)))))
                    .collect();
                let returns_rows = probe::probe(&mut txn, steps, &rendered).await?;
                let parts =
                    Parts { steps, wanted: &wanted, returns_rows: &returns_rows, events: writes_events };
                each(store, &server, &parts).await?
            }
            Handler::Batch(_) => {
                let used = messages::columns(steps.iter().map(|step| step.sql.source()));
                let wanted = Wanted { used, payload, levels };
                let rendered: Vec<_> = steps
                    .iter()
                    .map(|step| {
                        rendered(step, |_| {
                            batch::over_messages(step, &wanted).ok_or(StatementError::WithoutMessages)
                        })
                    })
                    .collect();
                probe::probe(&mut txn, steps, &rendered).await?;
                let statements: Vec<String> = rendered.into_iter().flatten().collect();
                Plan::Batch(Batch::new(&statements, &wanted, writes_events))
            }
        };
        txn.rollback().await;
        Ok(Self { store: store.clone(), plan, sources: Sources::new(steps), writes_events })
    }

    async fn run(&self, conn: &mut MySqlConnection, fresh: &[Message]) -> Result<(), Failure> {
        let values = self.plan.wanted().values(fresh)?;
        let Err(error) = self.plan.apply(&self.store, conn, fresh, &values).await? else { return Ok(()) };
        let place = failure::place(conn).await;
        match &self.plan {
            // Not one statement has run.
            Plan::Procedure(procedure)
                if place.message.is_none() && number_of(&error) == Some(routine::MISSING) =>
            {
                Err(Failure::of_batch(procedure.is_gone(error)))
            }
            _ => Err(failure::failure(&self.sources, fresh.len(), &place, error)),
        }
    }
}

impl Plan {
    fn wanted(&self) -> &Wanted {
        match self {
            Self::Block(block) => &block.wanted,
            Self::Procedure(procedure) => &procedure.wanted,
            Self::Texts(texts) => &texts.wanted,
            Self::Batch(batch) => &batch.wanted,
        }
    }

    /// The outer error is about the handler, the inner one about what it did.
    async fn apply(
        &self,
        store: &MysqlStore,
        conn: &mut MySqlConnection,
        fresh: &[Message],
        values: &[Values<'_>],
    ) -> Result<sqlx::Result<()>, Failure> {
        Ok(match self {
            Self::Block(block) => block.apply(conn, fresh, values).await,
            Self::Procedure(procedure) => {
                procedure.bring_back(store).await.map_err(Failure::of_batch)?;
                procedure.apply(conn, fresh, values).await
            }
            Self::Texts(texts) => texts.apply(conn, values).await,
            Self::Batch(batch) => batch.apply(conn, values).await,
        })
    }
}

/// A statement as it is probed, if this store takes it.
fn rendered(step: &Step, render: impl Fn(&Sql) -> Result<String, StatementError>) -> Rendered {
    dialect::check(&step.sql).and_then(|()| render(&step.sql)).map_err(|error| error.to_string())
}

/// The parameters of the statements, and what their events need. The id is always there: a cursor needs a column.
fn used(steps: &[Step], writes_events: bool) -> std::collections::BTreeSet<Param> {
    let cause = if writes_events { events::CAUSE.as_slice() } else { &[] };
    steps.iter().flat_map(|step| step.sql.params()).chain(cause.iter().copied()).chain([Param::Id]).collect()
}

/// The quickest way that this server and this user allow.
async fn each(store: &MysqlStore, server: &Server, parts: &Parts<'_>) -> Result<Plan, SqlHandlerError> {
    if server.is_mariadb {
        return Ok(Plan::Block(Block::new(parts)));
    }
    Ok(match Procedure::make(store, server, parts).await? {
        Some(procedure) => Plan::Procedure(procedure),
        None => {
            tracing::warn!(
                "this user may not create routines, so a handler in SQL runs in a slower way: GRANT CREATE ROUTINE, EXECUTE"
            );
            Plan::Texts(Texts::new(parts))
        }
    })
}

impl SqlStore for MysqlStore {
    type Handler = SqlHandler;

    async fn prepare(&self, handler: &Handler, payload: PayloadKind) -> Result<SqlHandler, SqlHandlerError> {
        SqlHandler::prepare(self, handler, payload).await
    }

    fn check_dialect(sql: &Sql) -> Result<(), StatementError> {
        dialect::check(sql)
    }
}

impl Apply<MysqlStore> for SqlHandler {
    async fn apply(&self, conn: &mut MySqlConnection, fresh: &[Message]) -> Result<(), Failure> {
        if fresh.is_empty() {
            return Ok(());
        }
        // A failure of the messages passes through as a value, so that only silence becomes an error of the store.
        let run = async { Ok(self.run(conn, fresh).await) };
        self.store.patiently("running a handler in SQL", run).await.map_err(Failure::of_batch)??;
        if self.writes_events {
            events_written();
        }
        Ok(())
    }
}
