//! What the tests have in common.

use mongodb::bson::{Document, doc};
use oncebox_core::error::BoxError;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::message::Record;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{
    Advance, Claim, Claimed, DeadFilter, DeadLetter, Duplicates, Ownership, PositionKey, Progress, Store,
    StoreResult,
};
use oncebox_mongodb::{MongoStore, MongoTxn, TemporaryMongo};

pub(crate) type Verdict = Result<(), BoxError>;

/// The URL of the replica set, without a database.
pub(crate) fn server() -> String {
    std::env::var("ONCEBOX_TEST_MONGODB").unwrap_or_else(|_| {
        panic!("ONCEBOX_TEST_MONGODB must hold the URL of a replica set, such as mongodb://127.0.0.1/?replicaSet=rs0")
    })
}

/// A database for one test, with oncebox's collections.
pub(crate) async fn database() -> TemporaryMongo {
    TemporaryMongo::new(&server()).await
}

pub(crate) fn stock() -> ConsumerName {
    ConsumerName::new("stock").unwrap()
}

/// The partition that most tests use.
pub(crate) fn orders() -> PositionKey {
    PositionKey { consumer: stock(), topic: "orders".into(), partition: 0 }
}

/// Opens a transaction with the receipt of this message.
pub(crate) async fn claim(store: &MongoStore, id: &str) -> StoreResult<Claimed<MongoTxn>> {
    let consumer = stock();
    let key = ReceiptKey::of(&consumer, &Tenant::new("").unwrap(), &MessageId::new(id).unwrap());
    store.claim(&consumer, &[Claim { key, tenant: "", message_id: id, set: &[], fingerprint: None }]).await
}

/// Moves the position to this offset.
pub(crate) fn to(owner: &Ownership, next_offset: i64) -> Option<Advance<'_>> {
    let progress = Progress { next_offset: Some(next_offset), ..Progress::default() };
    Some(Advance { owner, progress, applied: 1, duplicates: Duplicates::default(), finished_attempt: None })
}

/// The message ids of all receipts, sorted.
pub(crate) async fn receipts(temporary: &TemporaryMongo) -> Result<Vec<String>, BoxError> {
    use futures_util::TryStreamExt;
    let inbox = temporary.database().await.collection::<Document>("oncebox_inbox");
    let found: Vec<Document> =
        inbox.find(doc! {}).sort(doc! { "message_id": 1 }).await?.try_collect().await?;
    Ok(found.iter().map(|receipt| receipt.get_str("message_id").unwrap_or_default().to_owned()).collect())
}

/// Claims of messages without a tenant.
pub(crate) fn claims<'a>(ids: &[&'a str]) -> Vec<Claim<'a>> {
    let claim = |id: &&'a str| {
        let key = ReceiptKey::of(&stock(), &Tenant::none(), &MessageId::new(*id).unwrap());
        Claim { key, tenant: "", message_id: id, set: &[], fingerprint: None }
    };
    ids.iter().map(claim).collect()
}

/// Claims and commits; which were fresh.
pub(crate) async fn apply(store: &MongoStore, ids: &[&str]) -> StoreResult<Vec<bool>> {
    let claimed = store.claim(&stock(), &claims(ids)).await?;
    store.commit(claimed.txn, None).await?;
    Ok(claimed.fresh)
}

/// A letter at this offset of `orders/0`.
pub(crate) fn letter(id: Option<&str>, offset: i64) -> DeadLetter {
    let mut record = Record::at("orders", 0, offset);
    record.payload = Some("{}".into());
    DeadLetter {
        tenant: Tenant::none(),
        message_id: id.map(str::to_owned),
        record,
        error: "no such stock".to_owned(),
        attempts: 5,
    }
}

/// All letters, up to a hundred.
pub(crate) fn all() -> DeadFilter {
    DeadFilter { limit: 100, ..DeadFilter::default() }
}
