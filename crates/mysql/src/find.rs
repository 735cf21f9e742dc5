//! One message by its id.

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Claim, Find, FoundReceipt, StoreResult};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::adopted;
use crate::classify::Context;
use crate::store::MysqlStore;
use crate::time::in_ms;

impl Find for MysqlStore {
    async fn receipt(
        &self,
        consumer: &ConsumerName,
        tenant: &Tenant,
        id: &MessageId,
    ) -> StoreResult<Option<FoundReceipt>> {
        const RECEIPT: &str = concat!(
            "SELECT ",
            in_ms!("processed_at"),
            " AS processed_at_ms FROM oncebox_inbox WHERE `key` = ? AND CAST(consumer AS BINARY) = CAST(? AS BINARY) \
             AND CAST(tenant AS BINARY) = CAST(? AS BINARY) AND CAST(message_id AS BINARY) = CAST(? AS BINARY)"
        );
        let doing = "looking for a receipt";
        let key = ReceiptKey::of(consumer, tenant, id);
        self.patiently(doing, async {
            let found = if let Some(table) = &self.inner.adopted {
                let (tenant, message_id) = (tenant.as_str(), id.as_str());
                let claim = Claim { key, tenant, message_id, set: &[], fingerprint: None };
                adopted::find_receipt(self, table, consumer, claim).await?
            } else {
                let mut txn = self.begin_aside().await?;
                let receipt = self.query(RECEIPT).bind(key.as_bytes().as_slice());
                let receipt = receipt.bind(consumer.as_str()).bind(tenant.as_str()).bind(id.as_str());
                let row = receipt.fetch_optional(&mut *txn).await.context(doing)?;
                txn.rollback().await;
                let found = |row: MySqlRow| -> sqlx::Result<FoundReceipt> {
                    Ok(FoundReceipt { processed_at_ms: row.try_get("processed_at_ms")? })
                };
                row.map(found).transpose().context(doing)?
            };
            Ok(found)
        })
        .await
    }
}
