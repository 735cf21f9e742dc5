//! What a transaction leaves behind if it is committed. Many statements commit by themselves here, and the server does not say
//! so: this is the only way to see it afterwards.

use oncebox_core::inbox::ReceiptKey;
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use uuid::Uuid;

use crate::claim::BATCH_NOW;
use crate::quote::push_bytes;

/// What is to be looked for.
#[derive(Debug, Default)]
pub(crate) enum Trace {
    /// Nothing: no handler runs in the transaction, or all of its messages are copies.
    #[default]
    None,
    /// These receipts, with the time of the batch. Who else may have written them meanwhile has another one.
    Receipts(Vec<ReceiptKey>),
    /// A row of our own with this number, which the commit removes again. Receipts in an adopted table prove nothing: when a deadlock
    /// ends the transaction, old code that waited for it writes them.
    Mark(i64),
    /// The dead letter with this number is gone.
    Letter(i64),
}

/// Attempts of no consumer, so that nobody else looks at the row.
const MARKED: &str = "consumer = '' AND topic = '' AND `partition` = -1 AND `offset` =";

impl Trace {
    /// A mark of its own, and the statement that writes it.
    pub(super) fn mark() -> (Self, String) {
        let (_, random) = Uuid::now_v7().as_u64_pair();
        let number = random.cast_signed();
        let write = format!(
            "INSERT INTO oncebox_attempt (consumer, topic, `partition`, `offset`, attempts) VALUES ('', '', -1, {number}, 0)"
        );
        (Self::Mark(number), write)
    }

    /// The statement that removes what is only there to be looked for.
    pub(super) fn removal(&self) -> Option<String> {
        match self {
            Self::Mark(number) => Some(format!("DELETE FROM oncebox_attempt WHERE {MARKED} {number}")),
            Self::None | Self::Receipts(_) | Self::Letter(_) => None,
        }
    }

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
            Self::Mark(number) => {
                Some(format!("SELECT COUNT(*) FROM oncebox_attempt WHERE {MARKED} {number}"))
            }
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
            Self::Mark(_) => count() == Some(1),
            Self::Letter(_) => count() == Some(0),
        }
    }
}
