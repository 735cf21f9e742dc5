//! `oncebox purge`: one retention pass now.

use std::path::Path;

use oncebox_core::Retention;
use serde_json::json;

use crate::args::Output;
use crate::exit::{Answer, CommandResult};
use crate::load;
use crate::output;
use crate::stores::{self, SqlStore, WithStore, require_schema, with_store};

pub(crate) async fn run(file: &Path, dry_run: bool, output: Output) -> CommandResult {
    let config = load::config(file)?;
    let retention = stores::retention(&config.inboxes);
    with_store(&config.store, Purge { retention, dry_run, output }).await
}

struct Purge {
    retention: Vec<Retention>,
    dry_run: bool,
    output: Output,
}

impl WithStore for Purge {
    type Output = CommandResult;

    async fn run<S: SqlStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let spinner = output::spinner("purging old receipts");
        let purged = store.purge(&self.retention, self.dry_run).await;
        spinner.finish_and_clear();
        let purged = purged?;
        match self.output {
            Output::Json => output::json(&json!({
                "dry_run": self.dry_run, "receipts": purged.receipts, "partitions": purged.partitions,
            }))?,
            Output::Table => {
                let verb = if self.dry_run { "would remove" } else { "removed" };
                output::line(&format!(
                    "{verb} {} receipts and {} whole partitions",
                    purged.receipts, purged.partitions
                ))?;
            }
        }
        Ok(Answer::Yes)
    }
}
