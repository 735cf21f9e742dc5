//! What purge has to know about an adopted table.

use oncebox_core::store::{ErrorClass, IdKind, StoreError, StoreResult};

use super::statements::id_bytes;
use crate::purge::{Letters, Mark, Receipts};
use crate::quote::identifier;
use crate::store::MysqlStore;

/// Where the receipts are and which of them may go; `None` if none ever are, because nobody knows how old they are.
pub(crate) async fn receipts(store: &MysqlStore, consumers: usize) -> StoreResult<Option<Receipts>> {
    let Some(adopted) = &store.inner.adopted else { return Ok(Some(Receipts::own())) };
    let table = adopted.table(store).await?;
    let adopt = &table.adopt;
    let Some(time) = adopt.processed_at_column().filter(|_| adopt.is_purged(&table.found)) else {
        return Ok(None);
    };
    if adopt.consumer_column().is_none() && consumers > 1 {
        let why = format!("the table {adopt} has no column for consumers, so it serves one consumer only");
        return Err(StoreError::new(ErrorClass::Failed, "purging receipts", why));
    }
    let column = |name: &str| format!("i.{}", identifier(name));
    let id = column(adopt.message_id_column());
    // As the columns of the letters are, so that their index can be used; whatever the application's columns are.
    let as_letter = |column: &str| format!("CONVERT({column} USING utf8mb4) COLLATE utf8mb4_bin");
    let tenant = adopt.tenant_column().map_or_else(
        || "_utf8mb4 X''".to_owned(),
        |name| format!("COALESCE({}, _utf8mb4 X'')", as_letter(&column(name))),
    );
    let letters = match table.id {
        // As in oncebox's own table, blanks at the end are no difference, so that at most too many stay.
        IdKind::Text { .. } | IdKind::Bytes { .. } => {
            Letters::ByIndex(format!("d.message_id = {} AND d.tenant = {tenant}", as_letter(&id)))
        }
        // A dead letter has its id as the message spelled it, in one of many ways: no index helps, so they are read once.
        IdKind::Uuid | IdKind::UuidHex | IdKind::UuidBytes => {
            let plain = |text: &str| format!("CAST(REPLACE(LOWER({text}), '-', '') AS BINARY(32))");
            let of_receipt = match table.id {
                IdKind::UuidBytes => plain(&format!("HEX({id})")),
                _ => plain(&as_letter(&id)),
            };
            let same_tenant = ("CAST(d.tenant AS BINARY)".to_owned(), format!("CAST({tenant} AS BINARY)"));
            Letters::ByValue(vec![(plain("d.message_id"), of_receipt), same_tenant])
        }
    };
    let name = identifier(adopt.message_id_column());
    Ok(Some(Receipts {
        table: adopt.quoted('`'),
        mark: name.clone(),
        mark_bytes: id_bytes(table.id, &name),
        marked_by: match table.id {
            IdKind::UuidBytes | IdKind::Bytes { .. } => Mark::Bytes,
            IdKind::Text { .. } | IdKind::Uuid | IdKind::UuidHex => Mark::Text,
        },
        consumer: adopt.consumer_column().map(identifier),
        tenant: adopt.tenant_column().map(identifier),
        time: identifier(time),
        letters,
    }))
}
