//! The bare claim, for people with their own loop and their own transaction.

use super::receipt::ReceiptKey;
use crate::error::Error;
use crate::inbox::Inbox;
use crate::message::{Message, Record};
use crate::names::{ConsumerName, MessageId, Tenant};
use crate::store::StoreResult;
use crate::store::{Claim, Store};

/// What a claim found. There is no way to only look: that would invite check-then-act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Receipt {
    /// No receipt existed; it is written now and commits with your transaction. Apply the effect.
    Fresh,
    /// The message was applied before. Skip it and acknowledge.
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
    /// Writes the receipt of a message into your open transaction. Waits for a concurrent copy to commit or roll back.
    ///
    /// Commit the transaction if the effect succeeded, roll it back otherwise; acknowledge after the commit.
    pub async fn claim(&self, conn: &mut S::Conn, id: &str) -> Result<Receipt, Error> {
        self.claim_for(conn, "", id).await
    }

    /// [`Inbox::claim`] for a tenant: the same id of another tenant is another message.
    pub async fn claim_for(&self, conn: &mut S::Conn, tenant: &str, id: &str) -> Result<Receipt, Error> {
        // Only the identity matters here; the rest of the message stays with the caller.
        let message = Message::new(MessageId::new(id)?, Tenant::new(tenant)?, Record::at("", 0, 0));
        Ok(claim_one(self.store(), conn, self.consumer(), &message).await?)
    }
}

pub(crate) async fn claim_one<S: Store>(
    store: &S,
    conn: &mut S::Conn,
    consumer: &ConsumerName,
    message: &Message,
) -> StoreResult<Receipt> {
    let claim = Claim {
        key: ReceiptKey::of(consumer, message.tenant(), message.id()),
        tenant: message.tenant().as_str(),
        message_id: message.id().as_str(),
    };
    let fresh = store.claim_within(conn, consumer, &[claim]).await?;
    Ok(if fresh.first().copied().unwrap_or(false) { Receipt::Fresh } else { Receipt::Duplicate })
}
