//! Receipts in partitions by day.

use oncebox_core::{ErrorClass, StoreError, StoreResult};

use crate::store::PgStore;

/// What partitioning did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Partitioned {
    /// Day partitions created.
    pub created: u64,
}

impl PgStore {
    /// Partitions.
    pub async fn partition_receipts(&self) -> StoreResult<Partitioned> {
        Err(StoreError::new(ErrorClass::Failed, "partitioning", "not there yet"))
    }
}
