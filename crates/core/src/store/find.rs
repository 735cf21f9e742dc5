//! One message: whether it was applied.

use std::future::Future;

use super::{Store, StoreResult};
use crate::names::{ConsumerName, MessageId, Tenant};

/// That a consumer has settled a message: applied it, or made a dead letter of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundReceipt {
    /// When, in milliseconds since 1970; `None` if the table has no time, or none that is known to be one.
    pub processed_at_ms: Option<i64>,
}

/// Looking for a message by its id.
///
/// This is for people. Whether to apply a message is never asked: it is claimed.
pub trait Find: Store {
    /// The committed receipt of a message, by its key.
    fn receipt(
        &self,
        consumer: &ConsumerName,
        tenant: &Tenant,
        id: &MessageId,
    ) -> impl Future<Output = StoreResult<Option<FoundReceipt>>> + Send;
}
