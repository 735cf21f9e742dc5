//! Letters that an operator drops for good.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::audit::{Operator, as_parameters};
use crate::error::describe;
use crate::store::{Audit, DeadFilter, DeadLetters, StoreResult};

/// How many letters one statement removes.
const PAGE_ROWS: u32 = 200;

impl<S: DeadLetters + Audit> Operator<S> {
    /// Drops all letters that a filter means, a page at a time, until `stop`. Their receipts stay: a copy that comes is still a
    /// copy. Returns how many.
    pub async fn drop_letters(
        &self,
        filter: &DeadFilter,
        reason: Option<&str>,
        stop: &CancellationToken,
    ) -> StoreResult<u64> {
        let mut parameters = as_parameters(filter);
        if let Some(reason) = reason {
            parameters["reason"] = json!(reason);
        }
        let action = self.action("drop").to(filter.consumer.as_deref().unwrap_or_default()).with(parameters);
        let ongoing = self.begin(action).await?;
        let page = DeadFilter { limit: PAGE_ROWS, ..filter.clone() };
        let mut dropped = 0;
        while !stop.is_cancelled() {
            match self.store.drop_dead(&page).await {
                Ok(count) => {
                    dropped += count;
                    if count < u64::from(PAGE_ROWS) {
                        break;
                    }
                }
                Err(error) => {
                    ongoing.so_far(json!({ "dropped": dropped })).await;
                    ongoing.failed(describe(&error)).await;
                    return Err(error);
                }
            }
        }
        ongoing.ended(json!({ "dropped": dropped, "stopped": stop.is_cancelled() })).await;
        Ok(dropped)
    }
}
