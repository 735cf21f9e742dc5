//! One message by its id.

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Claim, Find, FoundReceipt, StoreResult};
use sqlx::Row;
use uuid::Uuid;

use crate::adopted;
use crate::classify::Context;
use crate::store::PgStore;

impl Find for PgStore {
    async fn receipt(
        &self,
        consumer: &ConsumerName,
        tenant: &Tenant,
        id: &MessageId,
    ) -> StoreResult<Option<FoundReceipt>> {
        const RECEIPT: &str = "SELECT (extract(epoch FROM processed_at) * 1000)::bigint FROM oncebox_inbox \
             WHERE key = $1 AND (consumer, tenant, message_id) = ($2, $3, $4)";
        let doing = "looking for a receipt";
        let key = ReceiptKey::of(consumer, tenant, id);
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let found = if let Some(table) = &self.inner.adopted {
                let claim = Claim {
                    key,
                    tenant: tenant.as_str(),
                    message_id: id.as_str(),
                    set: &[],
                    fingerprint: None,
                };
                adopted::find_receipt(self, table, &mut txn, consumer, claim).await?
            } else {
                let receipt = self.query(RECEIPT).bind(Uuid::from_bytes(*key.as_bytes()));
                let receipt = receipt.bind(consumer.as_str()).bind(tenant.as_str()).bind(id.as_str());
                let row = receipt.fetch_optional(&mut *txn).await.context(doing)?;
                let found = |row: sqlx::postgres::PgRow| -> sqlx::Result<FoundReceipt> {
                    Ok(FoundReceipt { processed_at_ms: row.try_get(0)? })
                };
                row.map(found).transpose().context(doing)?
            };
            txn.rollback().await;
            Ok(found)
        })
        .await
    }
}
