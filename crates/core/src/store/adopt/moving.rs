//! From an adopted table to oncebox's own.

use std::future::Future;

use super::{Adopt, AdoptedUse};
use crate::inbox::ReceiptKey;
use crate::names::{ConsumerName, MessageId, Tenant};
use crate::store::{Finding, Store, StoreResult};

/// The table that receipts are copied from.
#[derive(Debug, Clone, Copy)]
pub struct CopyFrom<'a> {
    /// The table and its columns.
    pub adopt: &'a Adopt,
    /// Whose receipts they are, where the table has no column for consumers.
    pub consumer: Option<&'a ConsumerName>,
    /// Only count what would be copied.
    pub dry_run: bool,
}

/// A receipt on its way from an adopted table to oncebox's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedReceipt {
    /// Its key there.
    pub key: ReceiptKey,
    /// The consumer.
    pub consumer: String,
    /// The tenant, `""` when none.
    pub tenant: String,
    /// The message id.
    pub message_id: String,
    /// When the message was applied, in microseconds since 1970, if the table says so.
    pub processed_at_us: Option<i64>,
}

impl CopiedReceipt {
    /// `None` if no message of oncebox can have these names: then nobody will ever ask for it.
    #[must_use]
    pub fn new(
        consumer: String,
        tenant: String,
        message_id: String,
        processed_at_us: Option<i64>,
    ) -> Option<Self> {
        let name = ConsumerName::new(consumer.as_str()).ok()?;
        let scope = Tenant::new(tenant.as_str()).ok()?;
        let id = MessageId::new(message_id.as_str()).ok()?;
        let key = ReceiptKey::of(&name, &scope, &id);
        Some(Self { key, consumer, tenant, message_id, processed_at_us })
    }
}

/// Where a page begins. What the bytes mean is the store's business; the first page begins at the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageMark(pub Vec<u8>);

impl PageMark {
    /// Behind a number.
    #[must_use]
    pub fn number(number: i64) -> Self {
        Self(number.to_be_bytes().into())
    }

    /// The number, or the lowest of all for the first page.
    #[must_use]
    pub fn as_number(&self) -> i64 {
        self.0.as_slice().try_into().map_or(i64::MIN, i64::from_be_bytes)
    }
}

/// What a page of a pass has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopiedPage {
    /// Rows looked at.
    pub seen: u64,
    /// Receipts written, or missing in a dry run.
    pub written: u64,
    /// Rows that no message of oncebox can be: their id is empty or too long, or their consumer is no name.
    pub skipped: u64,
    /// Whether the ids are UUIDs, of which every spelling but one is lost.
    pub uuids: bool,
    /// Where the next page begins; `None` after the last.
    pub next: Option<PageMark>,
    /// How much of the table was looked at, and how much there is, as far as the store knows.
    pub progress: (u64, u64),
}

/// How a switch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switched {
    /// The rest is copied, so many receipts, and the table has this name now, which may be the old one.
    Now {
        /// Receipts written.
        written: u64,
        /// The table's name.
        name: String,
    },
    /// That was done before.
    Before,
}

/// A store whose receipts can be in a table that the application already has.
pub trait Adopting: Store {
    /// Looks at the definition of the adopted table and says what the mapping lacks. Nothing if no table is adopted.
    fn check_adopted(&self, usage: AdoptedUse) -> impl Future<Output = StoreResult<Vec<Finding>>> + Send;

    /// Whether the table has its other name already, or takes no more writes: see [`Adopting::switch_receipts`].
    fn is_switched(&self, adopt: &Adopt) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Copies one page of receipts into oncebox's own table, each with its own time. Safe
    /// while others write, and as often as wanted: what is there already stays.
    fn copy_receipts(
        &self,
        from: CopyFrom<'_>,
        page: &PageMark,
    ) -> impl Future<Output = StoreResult<CopiedPage>> + Send;

    /// Keeps everybody from writing to the table, copies what is missing, and gives the table another name (its own, and
    /// `_adopted`), so that who still writes to it fails and rolls back instead of slipping a copy past the new one. In a database
    /// where that would stop nobody, because a write makes the table, it keeps its name and takes no more writes.
    fn switch_receipts(&self, from: CopyFrom<'_>) -> impl Future<Output = StoreResult<Switched>> + Send;
}
