//! Transactions that stay open, of whomever: what is removed meanwhile cannot be cleaned away.

use std::time::Duration;

use oncebox_config::StoreConfig;
use oncebox_core::store::Finding;

use crate::exit::Failure;
use crate::stores::ConfiguredStore;

/// What to say of the transactions that are older than the configuration has it.
pub(crate) async fn finding<S: ConfiguredStore>(
    store: &S,
    config: &StoreConfig,
) -> Result<Option<Finding>, Failure> {
    let old = store.old_transactions(config.old_transaction).await?;
    let named: Vec<String> =
        old.iter().map(|(who, age)| format!("{who}, open for {}", shown(*age))).collect();
    Ok((!named.is_empty()).then(|| {
        Finding::warning(
            "old transactions",
            format!(
                "{}: until it ends, what is removed cannot be cleaned away, and the relay gets slower the more passes through the \
                 outbox. End it, or let long reports read from a replica",
                named.join("; ")
            ),
        )
    }))
}

fn shown(age: Duration) -> String {
    humantime::format_duration(Duration::from_secs(age.as_secs())).to_string()
}
