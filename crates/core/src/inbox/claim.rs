//! The bare claim, for people with their own loop and their own transaction.

use tokio_util::sync::CancellationToken;

use super::receipt::ReceiptKey;
use crate::error::Error;
use crate::inbox::Inbox;
use crate::message::{Message, Record};
use crate::names::{ConsumerName, MessageId, Tenant};
use crate::store::{Claim, Purge, PurgePass, Purged, Retention, Store, StoreResult};

/// What a claim found. There is no way to only look: that would invite check-then-act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Receipt {
    /// No receipt existed; it is written now and commits with your transaction. Apply the effect.
    Fresh,
    /// The message was applied before. Skip it, commit, and acknowledge. The commit matters on MongoDB: a transaction there may read
    /// what a failover still takes back, and only its commit waits until that cannot be.
    Duplicate,
}

impl Receipt {
    /// Whether the effect is to be applied.
    #[must_use]
    pub fn is_fresh(self) -> bool {
        self == Self::Fresh
    }
}

impl<S: Store> Inbox<S> {
    /// Writes the receipt of a message into your open transaction. Waits for a concurrent copy to commit or roll back; on MongoDB, which
    /// does not wait, it fails at once with an error that is transient: abort, and run the transaction again.
    ///
    /// Commit the transaction if the effect succeeded, roll it back otherwise; acknowledge after the commit. PostgreSQL needs
    /// READ COMMITTED, SQLite `BEGIN IMMEDIATE`. Call [`Inbox::purge`] now and then.
    ///
    /// ```
    /// use oncebox::Inbox;
    /// use oncebox::sqlite::SqliteStore;
    /// use sqlx::{Connection, SqliteConnection};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> oncebox::Result {
    /// # let folder = tempfile::tempdir()?;
    /// # let url = format!("sqlite://{}", folder.path().join("shop.sqlite").display());
    /// let store = SqliteStore::connect(&url).await?;
    /// store.migrate().await?;
    /// let inbox = Inbox::new("invoices", store)?;
    /// let mut connection = SqliteConnection::connect(&url).await?;
    ///
    /// let mut applied = Vec::new();
    /// for id in ["INV-1", "INV-2", "INV-1"] {
    ///     let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    ///     if inbox.claim(&mut tx, id).await?.is_fresh() {
    ///         applied.push(id); // with tx
    ///     }
    ///     tx.commit().await?;
    ///     // Now acknowledge.
    /// }
    /// assert_eq!(applied, ["INV-1", "INV-2"]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn claim(&self, conn: &mut S::Conn, id: &str) -> Result<Receipt, Error> {
        self.claim_for(conn, "", id).await
    }

    /// [`Inbox::claim`] for a tenant: the same id of another tenant is another message.
    pub async fn claim_for(&self, conn: &mut S::Conn, tenant: &str, id: &str) -> Result<Receipt, Error> {
        // Only the identity matters here; the rest of the message stays with the caller.
        let message = Message::new(MessageId::new(id)?, Tenant::new(tenant)?, Record::at("", 0, 0));
        // There is no message to read further columns from.
        let set = vec![None; self.store().further().len()];
        Ok(claim_one(self.store(), conn, &self.consumer, &message, &set).await?)
    }

    /// Removes the receipts of this consumer that are older than [`Inbox::retention`]: one pass, now. Only for a loop of
    /// your own; a [`Worker`](super::Worker) does it by itself.
    pub async fn purge(&self) -> Result<Purged, Error>
    where
        S: Purge,
    {
        let settings = &self.settings;
        let retention = Retention { consumer: self.consumer.clone(), keep: settings.retention };
        let pass = PurgePass {
            retention: &[retention],
            now_ms: settings.clock.now_ms(),
            dry_run: false,
            stop: &CancellationToken::new(),
            progress: &|_| {},
        };
        Ok(self.store().purge(pass).await?)
    }
}

pub(crate) async fn claim_one<S: Store>(
    store: &S,
    conn: &mut S::Conn,
    consumer: &ConsumerName,
    message: &Message,
    set: &[Option<String>],
) -> StoreResult<Receipt> {
    let claim = Claim {
        key: ReceiptKey::of(consumer, message.tenant(), message.id()),
        tenant: message.tenant().as_str(),
        message_id: message.id().as_str(),
        set,
        fingerprint: None,
    };
    let fresh = store.claim_within(conn, consumer, &[claim]).await?;
    Ok(if fresh.first().copied().unwrap_or(false) { Receipt::Fresh } else { Receipt::Duplicate })
}
