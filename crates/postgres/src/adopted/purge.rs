//! What purge has to know about an adopted table.

use oncebox_core::store::{ErrorClass, IdKind, StoreError, StoreResult};

use crate::purge::Receipts;
use crate::quote::identifier;
use crate::store::PgStore;

/// Where the receipts are and which of them may go; `None` if none ever are, because nobody knows how old they are.
pub(crate) async fn receipts(store: &PgStore, consumers: usize) -> StoreResult<Option<Receipts>> {
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
    let consumer = adopt
        .consumer_column()
        .map_or_else(|| "h.consumer".to_owned(), |name| format!("{}::text", column(name)));
    let tenant = adopt
        .tenant_column()
        .map_or_else(|| "''".to_owned(), |name| format!("coalesce({}::text, '')", column(name)));
    let id = column(adopt.message_id_column());
    // A dead letter has its id as the message spelled it.
    let of_letter = match table.id {
        IdKind::Text { .. } => format!("d.message_id = {id}::text"),
        IdKind::Bytes { .. } => format!("convert_to(d.message_id, 'UTF8') = {id}"),
        IdKind::UuidBytes => format!("replace(lower(d.message_id), '-', '') = encode({id}, 'hex')"),
        IdKind::Uuid | IdKind::UuidHex => {
            format!("replace(lower(d.message_id), '-', '') = replace({id}::text, '-', '')")
        }
    };
    let removable = format!(
        "{consumer} = h.consumer AND {}::timestamptz < h.before AND NOT EXISTS (SELECT FROM oncebox_dead d \
         WHERE d.consumer = h.consumer AND {of_letter} AND d.tenant = {tenant})",
        column(time)
    );
    Ok(Some(Receipts { table: adopt.quoted('"'), removable }))
}
