//! What the simulation has no use for: a schema, a check, a status.

use oncebox_core::store::{Check, Finding, Migrate, Migration, Status, StoreResult, StoreStatus};

use super::ModelStore;

impl Migrate for ModelStore {
    async fn migrations(&self) -> StoreResult<Vec<Migration>> {
        Ok(Vec::new())
    }

    async fn migrate(&self) -> StoreResult<Vec<Migration>> {
        Ok(Vec::new())
    }
}

impl Check for ModelStore {
    async fn ping(&self) -> StoreResult<()> {
        self.operation(|_| Ok(())).await
    }

    async fn check(&self) -> StoreResult<Vec<Finding>> {
        Ok(Vec::new())
    }
}

impl Status for ModelStore {
    async fn status(&self, _count_cap: u64) -> StoreResult<StoreStatus> {
        Ok(StoreStatus::default())
    }
}
