//! SQL handlers for an inbox that is described in Rust.

use std::future::Future;

use oncebox_core::inbox::{Inbox, Worker};

use crate::{Handler, PayloadKind, SqlHandlerError, SqlStore, Statement};

/// Gives an [`Inbox`] a handler written in SQL. A whole batch of messages then takes a single round trip, where a handler
/// in Rust waits for one per statement and message.
///
/// The payload is JSON. For another kind, prepare the handler yourself:
/// `inbox.apply(store.prepare(&Handler::each([…])?, PayloadKind::Text).await?)`.
pub trait SqlInbox: Sized {
    /// Where the statements run.
    type Store: SqlStore;

    /// Statements that run for every message, in order. They are checked against the database here.
    ///
    /// # Errors
    /// Every statement that is wrong, or trouble with the database.
    fn sql_each(
        self,
        statements: impl IntoIterator<Item = impl Into<Statement>>,
    ) -> impl Future<Output = Prepared<Self::Store>> + Send;

    /// Set-based statements that run once per batch, over the relation `messages`. They are checked against the database
    /// here.
    ///
    /// # Errors
    /// Every statement that is wrong, or trouble with the database.
    fn sql_batch(
        self,
        statements: impl IntoIterator<Item = impl Into<Statement>>,
    ) -> impl Future<Output = Prepared<Self::Store>> + Send;
}

/// A worker whose handler is written in SQL, or why there is none.
pub type Prepared<S> = Result<Worker<S>, SqlHandlerError>;

impl<S: SqlStore> SqlInbox for Inbox<S> {
    type Store = S;

    fn sql_each(
        self,
        statements: impl IntoIterator<Item = impl Into<Statement>>,
    ) -> impl Future<Output = Prepared<S>> + Send {
        prepare(self, Handler::each(statements))
    }

    fn sql_batch(
        self,
        statements: impl IntoIterator<Item = impl Into<Statement>>,
    ) -> impl Future<Output = Prepared<S>> + Send {
        prepare(self, Handler::batch(statements))
    }
}

async fn prepare<S: SqlStore>(inbox: Inbox<S>, handler: Result<Handler, SqlHandlerError>) -> Prepared<S> {
    let prepared = inbox.store().prepare(&handler?, PayloadKind::default()).await?;
    Ok(inbox.apply(prepared))
}
