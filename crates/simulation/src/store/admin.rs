//! What the model has no use for: a schema, and a check of it.

use std::time::Duration;

use oncebox_core::store::{Check, Finding, Migrate, Migration, StoreResult};

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

    async fn check(&self, _largest_batch: usize) -> StoreResult<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn old_transactions(&self, _older_than: Duration) -> StoreResult<Vec<(String, Duration)>> {
        Ok(Vec::new())
    }
}
