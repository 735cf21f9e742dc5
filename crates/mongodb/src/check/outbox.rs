//! Whether somebody publishes what is in the outbox.

use std::collections::HashSet;

use oncebox_core::store::{Finding, OutboxStatus, StoreResult};

use crate::status;
use crate::store::MongoStore;

/// Nothing about an outbox that nobody uses.
pub(super) async fn findings(store: &MongoStore) -> StoreResult<Vec<Finding>> {
    Ok(of_status(&status::outbox(store, 1).await?))
}

fn of_status(status: &OutboxStatus) -> Vec<Finding> {
    let relays: HashSet<_> = status.shards.iter().filter_map(|shard| shard.owner.as_deref()).collect();
    let mut findings = Vec::new();
    if status.pending > 0 && relays.is_empty() {
        findings.push(Finding::warning(
            "outbox",
            "events wait and no relay is alive: set outbox.relay = true and run `oncebox run`, or run a relay in \
             your own program",
        ));
    } else if !relays.is_empty() {
        findings.push(Finding::ok("outbox", format!("{} relays alive", relays.len())));
    }
    if status.parked > 0 {
        findings.push(Finding::warning(
            "outbox",
            "some events were given up: look at their errors, then retry or drop them",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use oncebox_core::store::FindingLevel::{Ok, Warning};
    use oncebox_core::store::ShardStatus;

    use super::*;

    #[test]
    fn events_that_nobody_publishes_are_told() {
        let levels = |pending, parked, owner: Option<&str>| {
            let shard = ShardStatus { shard: 0, owner: owner.map(str::to_owned), epoch: 1, expires_in: None };
            let status = OutboxStatus { pending, parked, shards: vec![shard], ..OutboxStatus::default() };
            of_status(&status).into_iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(levels(0, 0, None), []);
        assert_eq!(levels(1, 0, None), [Warning]);
        assert_eq!(levels(1, 1, Some("relay")), [Ok, Warning]);
    }
}
