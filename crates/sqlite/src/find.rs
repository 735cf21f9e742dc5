//! One message by its id.

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Claim, Find, FoundReceipt, StoreResult};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::adopted;
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::millis;

impl Find for SqliteStore {
    async fn receipt(
        &self,
        consumer: &ConsumerName,
        tenant: &Tenant,
        id: &MessageId,
    ) -> StoreResult<Option<FoundReceipt>> {
        const RECEIPT: &str = concat!(
            "SELECT ",
            millis!("processed_at"),
            " FROM oncebox_inbox WHERE key = ?1 AND (consumer, tenant, message_id) = (?2, ?3, ?4)"
        );
        let doing = "looking for a receipt";
        let key = ReceiptKey::of(consumer, tenant, id);
        let mut conn = self.reader().await?;
        if let Some(table) = self.adopted.as_deref() {
            let (tenant, message_id) = (tenant.as_str(), id.as_str());
            let claim = Claim { key, tenant, message_id, set: &[], fingerprint: None };
            return adopted::find_receipt(self, table, &mut conn, consumer, claim).await;
        }
        let receipt = sqlx::query(RECEIPT).bind(key.as_bytes().as_slice());
        let receipt = receipt.bind(consumer.as_str()).bind(tenant.as_str()).bind(id.as_str());
        let row = receipt.fetch_optional(&mut *conn).await.context(doing)?;
        let found = |row: SqliteRow| -> sqlx::Result<FoundReceipt> {
            Ok(FoundReceipt { processed_at_ms: row.try_get(0)? })
        };
        row.map(found).transpose().context(doing)
    }
}
