//! One message by its id.

use mongodb::bson::doc;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Claim, Find, FoundReceipt, StoreResult};

use crate::adopted;
use crate::claim::{self, INBOX};
use crate::classify::Context;
use crate::store::MongoStore;

impl Find for MongoStore {
    async fn receipt(
        &self,
        consumer: &ConsumerName,
        tenant: &Tenant,
        id: &MessageId,
    ) -> StoreResult<Option<FoundReceipt>> {
        let doing = "looking for a receipt";
        let key = ReceiptKey::of(consumer, tenant, id);
        let (tenant, message_id) = (tenant.as_str(), id.as_str());
        let claim = Claim { key, tenant, message_id, set: &[], fingerprint: None };
        self.patiently(doing, async {
            if let Some(collection) = &self.inner.adopted {
                return adopted::find_receipt(self, collection, consumer, claim).await;
            }
            let own = doc! {
                "_id": claim::key(&claim), "consumer": consumer.as_str(), "tenant": tenant, "message_id": message_id,
            };
            let found = self.aside(INBOX).find_one(own).projection(doc! { "processed_at": 1 }).await;
            let at = |found: mongodb::bson::Document| FoundReceipt {
                processed_at_ms: found.get_datetime("processed_at").ok().map(|at| at.timestamp_millis()),
            };
            Ok(found.context(doing)?.map(at))
        })
        .await
    }
}
