//! What a transaction leaves behind if it is committed. Many statements commit by themselves here, and the server does not say
//! so: this is the only way to see it afterwards.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::StoredId;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::adopted::Table;
use crate::claim::BATCH_NOW;
use crate::quote::push_bytes;

/// What is to be looked for.
#[derive(Default)]
pub(crate) enum Trace {
    /// Nothing: no handler runs in the transaction, or all of its messages are copies.
    #[default]
    None,
    /// These receipts, with the time of the batch. Who else may have written them meanwhile has another one.
    Receipts(Vec<ReceiptKey>),
    /// These receipts in an adopted table. Others may have written some of them meanwhile, but hardly all.
    Adopted { table: Arc<Table>, consumer: ConsumerName, rows: HashSet<(StoredId, String)> },
    /// The dead letter with this number is gone.
    Letter(i64),
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Receipts(_) => "Receipts",
            Self::Adopted { .. } => "Adopted",
            Self::Letter(_) => "Letter",
        })
    }
}

impl Trace {
    /// The statement that looks for it, on the connection that it was written on.
    pub(super) fn question(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Receipts(keys) => {
                let mut sql = format!(
                    "SELECT COUNT(*) FROM oncebox_inbox WHERE processed_at = CAST({BATCH_NOW} AS DATETIME(6)) AND `key` IN ("
                );
                for (at, key) in keys.iter().enumerate() {
                    if at > 0 {
                        sql.push(',');
                    }
                    push_bytes(&mut sql, key.as_bytes());
                }
                sql.push(')');
                Some(sql)
            }
            Self::Adopted { table, consumer, rows } => Some(table.ask_for(consumer, rows)),
            Self::Letter(number) => {
                Some(format!("SELECT COUNT(*) FROM oncebox_dead WHERE number = {number}"))
            }
        }
    }

    /// Whether the answer shows it.
    pub(super) fn is_in(&self, answer: &[MySqlRow]) -> bool {
        let count = || answer.first().and_then(|row| row.try_get::<i64, _>(0).ok());
        match self {
            Self::None => false,
            Self::Receipts(keys) => count() == i64::try_from(keys.len()).ok(),
            Self::Adopted { table, consumer, rows } => table.has_all(consumer, rows, answer),
            Self::Letter(_) => count() == Some(0),
        }
    }
}
