//! [`Audit`] and [`Find`] of the model database: no history has to do with either.

use std::time::Duration;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{
    Action, ActionNote, Audit, AuditEntry, AuditFilter, Find, FoundReceipt, StoreResult,
};

use super::ModelStore;
use super::outbox::millis;

impl Audit for ModelStore {
    async fn begin_action(&self, action: &Action) -> StoreResult<i64> {
        self.operation(|inner| {
            let at_ms = inner.db_now_ms();
            let audit = &mut inner.db.tables.audit;
            let number = audit.keys().next_back().copied().unwrap_or_default() + 1;
            let entry = AuditEntry {
                number,
                at_ms,
                ended_at_ms: None,
                who: action.who().to_owned(),
                action: action.action().to_owned(),
                consumer: action.consumer().map(str::to_owned),
                parameters: action.parameters().clone(),
                result: None,
                error: None,
            };
            audit.insert(number, entry);
            Ok(number)
        })
        .await
    }

    async fn note_action(&self, number: i64, note: &ActionNote) -> StoreResult<()> {
        self.operation(|inner| {
            let now = inner.db_now_ms();
            let Some(entry) = inner.db.tables.audit.get_mut(&number) else { return Ok(()) };
            entry.result = note.result().cloned().or(entry.result.take());
            entry.error = note.error().map(str::to_owned).or(entry.error.take());
            entry.ended_at_ms = note.is_over().then_some(now).or(entry.ended_at_ms);
            Ok(())
        })
        .await
    }

    async fn actions(&self, filter: &AuditFilter) -> StoreResult<Vec<AuditEntry>> {
        self.operation(|inner| {
            let is = |wanted: &Option<String>, text: Option<&str>| {
                wanted.as_deref().is_none_or(|wanted| text == Some(wanted))
            };
            let wanted = |entry: &&AuditEntry| {
                is(&filter.who, Some(&entry.who))
                    && is(&filter.action, Some(&entry.action))
                    && is(&filter.consumer, entry.consumer.as_deref())
                    && filter.before.is_none_or(|before| entry.number < before)
            };
            let entries = inner.db.tables.audit.values().rev().filter(wanted);
            Ok(entries.take(filter.limit as usize).cloned().collect())
        })
        .await
    }

    async fn purge_actions(&self, keep: Duration) -> StoreResult<u64> {
        self.operation(|inner| {
            let before = inner.db_now_ms() - millis(keep);
            let audit = &mut inner.db.tables.audit;
            let count = audit.len();
            audit.retain(|_, entry| entry.at_ms >= before);
            Ok((count - audit.len()) as u64)
        })
        .await
    }
}

impl Find for ModelStore {
    async fn receipt(
        &self,
        consumer: &ConsumerName,
        tenant: &Tenant,
        id: &MessageId,
    ) -> StoreResult<Option<FoundReceipt>> {
        let key = ReceiptKey::of(consumer, tenant, id);
        self.operation(|inner| {
            let row = inner.db.tables.receipts.get(&key);
            Ok(row.map(|row| FoundReceipt { processed_at_ms: Some(row.processed_at_ms) }))
        })
        .await
    }
}
