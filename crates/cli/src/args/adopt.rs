//! The arguments of `oncebox migrate adopt`.

use clap::Args;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::IdFormat;

#[derive(Debug, Clone, Args)]
pub(crate) struct AdoptArgs {
    /// The table to copy from. Its columns are those of [store.adopt], if that names the table.
    #[arg(long, value_name = "TABLE")]
    pub(crate) from: String,
    /// The column that holds the ids of messages.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) message_id: Option<String>,
    /// How the ids are written, where the type of the column does not tell: text, uuid, hex or uuid-bytes.
    #[arg(long, value_name = "FORMAT", requires = "message_id")]
    pub(crate) id_format: Option<IdFormat>,
    /// The column that holds when a message was applied. Without it the copies are as old as the copying.
    #[arg(long, value_name = "COLUMN", requires = "message_id")]
    pub(crate) processed_at: Option<String>,
    /// The column that holds the consumer.
    #[arg(long, value_name = "COLUMN", requires = "message_id")]
    pub(crate) consumer_column: Option<String>,
    /// The column that holds the tenant.
    #[arg(long, value_name = "COLUMN", requires = "message_id")]
    pub(crate) tenant_column: Option<String>,
    /// Whose receipts they are, where the table has no column for that. With one inbox in the configuration: its consumer.
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<ConsumerName>,
    /// Stop before the switch: the table keeps its name, and whoever writes to it goes on.
    #[arg(long)]
    pub(crate) copy_only: bool,
    /// Only count what would be copied.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
