//! User code that gets the open transaction and a message, or a batch of fresh messages.
//!
//! A plain `async fn` or async closure is a handler. The shape of the traits below is what the compiler can infer without
//! annotations while the future stays `Send` and the transaction is only borrowed.

use std::future::Future;

use crate::error::{BoxError, Result};
use crate::message::Message;
use crate::store::Store;

/// A batch that could not be applied.
#[derive(Debug)]
pub struct Failure {
    /// The index of the message to blame, if it is known.
    pub at: Option<usize>,
    /// What happened.
    pub error: BoxError,
}

impl Failure {
    /// A failure nobody can pin on a message.
    pub fn of_batch(error: impl Into<BoxError>) -> Self {
        Self { at: None, error: error.into() }
    }
}

/// Applies a batch of fresh messages inside the open transaction, and can say which of them failed: for
/// [`Inbox::apply`](super::Inbox::apply). Every other kind of handler is wrapped into it.
///
/// A batch that fails without a message to blame is cut into halves; one that names its message costs one more transaction.
///
/// ```
/// use oncebox::handler::{Apply, Failure};
/// use oncebox::sqlite::SqliteStore;
/// use oncebox::{Message, reject};
/// use sqlx::SqliteConnection;
///
/// struct Import;
///
/// impl Apply<SqliteStore> for Import {
///     async fn apply(&self, tx: &mut SqliteConnection, fresh: &[Message]) -> Result<(), Failure> {
///         if let Some(at) = fresh.iter().position(|message| message.payload().is_none()) {
///             return Err(Failure { at: Some(at), error: reject("a tombstone") });
///         }
///         // … one statement for all of them …
///         sqlx::query("SELECT 1").execute(tx).await.map_err(Failure::of_batch)?;
///         Ok(())
///     }
/// }
/// ```
pub trait Apply<S: Store>: Send + Sync + 'static {
    /// Applies the messages in order. On failure the transaction is rolled back and the batch is cut.
    fn apply(
        &self,
        conn: &mut S::Conn,
        fresh: &[Message],
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A handler with state: a type of your own, for [`Inbox::with`](super::Inbox::with).
///
/// ```
/// use oncebox::sqlite::SqliteStore;
/// use oncebox::{Handler, Message, Result, reject};
/// use sqlx::SqliteConnection;
///
/// struct Bill {
///     cents_per_piece: i64,
/// }
///
/// impl Handler<SqliteStore> for Bill {
///     async fn handle(&self, tx: &mut SqliteConnection, message: &Message) -> Result {
///         let pieces: i64 = message.json()?;
///         if pieces <= 0 {
///             return Err(reject("nothing to bill"));
///         }
///         sqlx::query("INSERT INTO invoice (id, cents) VALUES (?, ?)")
///             .bind(message.id().as_str())
///             .bind(pieces * self.cents_per_piece)
///             .execute(tx)
///             .await?;
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a message handler for this store",
    label = "expected a type that implements `Handler`",
    note = "implement `Handler<S>` with `async fn handle(&self, tx: &mut S::Conn, message: &Message) -> oncebox::Result`",
    note = "a plain `async fn` or async closure goes into `.each(..)` or `.each_json(..)` instead of `.with(..)`"
)]
pub trait Handler<S: Store>: Send + Sync + 'static {
    /// Applies one message inside the open transaction.
    fn handle(&self, tx: &mut S::Conn, message: &Message) -> impl Future<Output = Result<()>> + Send;
}

/// Names the future of an async closure so that it can be required to be `Send`.
#[doc(hidden)]
pub trait SendFn<A, B>:
    AsyncFnOnce(A, B) -> Result<()> + FnOnce(A, B) -> <Self as SendFn<A, B>>::Fut
{
    type Fut: Future<Output = Result<()>> + Send;
}

impl<F, A, B, Fut> SendFn<A, B> for F
where
    F: AsyncFnOnce(A, B) -> Result<()> + FnOnce(A, B) -> Fut,
    Fut: Future<Output = Result<()>> + Send,
{
    type Fut = Fut;
}

macro_rules! handler_alias {
    ($(#[$doc:meta])* $name:ident $(<$t:ident>)?, $($life:lifetime)?, $arg:ty) => {
        $(#[$doc])*
        pub trait $name<S: Store $(, $t)?>:
            Clone + Send + Sync + 'static
            + for<'t $(, $life)?> AsyncFnOnce(&'t mut S::Conn, $arg) -> Result<()>
            + for<'t $(, $life)?> SendFn<&'t mut S::Conn, $arg>
        {
        }

        impl<S: Store, $($t,)? F> $name<S $(, $t)?> for F where
            F: Clone + Send + Sync + 'static
                + for<'t $(, $life)?> AsyncFnOnce(&'t mut S::Conn, $arg) -> Result<()>
                + for<'t $(, $life)?> SendFn<&'t mut S::Conn, $arg>
        {
        }
    };
}

handler_alias! {
    /// An `async fn(&mut Conn, &Message) -> oncebox::Result`.
    EachFn, 'm, &'m Message
}
handler_alias! {
    /// An `async fn(&mut Conn, T) -> oncebox::Result`, where `T` is read from the JSON payload.
    EachJsonFn<T>, , T
}
handler_alias! {
    /// An `async fn(&mut Conn, &[Message]) -> oncebox::Result`: set-based work over the fresh messages of a batch.
    BatchFn, 'm, &'m [Message]
}
