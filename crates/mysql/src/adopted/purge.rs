//! What purge has to know about an adopted table.

use oncebox_core::store::{ErrorClass, IdKind, StoreError, StoreResult};

use super::statements::{bytes_of, id_bytes};
use crate::purge::{Mark, Receipts};
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
    // A dead letter has its id as the message spelled it. Bytes are compared: collations of two tables may not mix.
    let letter = bytes_of("d.message_id");
    let plain = |text: &str| bytes_of(&format!("REPLACE(LOWER({text}), '-', '')"));
    let of_letter = match table.id {
        IdKind::Text { .. } => format!("{letter} = {}", bytes_of(&id)),
        IdKind::Bytes { .. } => format!("{letter} = {id}"),
        IdKind::Uuid | IdKind::UuidHex => {
            format!("{} = {}", plain("d.message_id"), plain(&format!("CONVERT({id} USING utf8mb4)")))
        }
        IdKind::UuidBytes => format!("{} = {}", plain("d.message_id"), plain(&format!("HEX({id})"))),
    };
    let of_tenant = match adopt.tenant_column() {
        Some(name) => format!("{} = COALESCE({}, '')", bytes_of("d.tenant"), bytes_of(&column(name))),
        None => "d.tenant = ''".to_owned(),
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
        of_letter: format!("{of_letter} AND {of_tenant}"),
    }))
}
