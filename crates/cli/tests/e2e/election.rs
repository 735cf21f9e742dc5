//! The primary of a replica set goes in the middle of a commit: what was confirmed by the majority stays, what was not is gone, and the
//! store knows which.

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::ReadConcern;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{
    Advance, Claim, Claimed, Duplicates, ErrorClass, Ownership, PositionKey, Positions, Progress, Store,
    StoreResult,
};
use oncebox_mongodb::{MongoStore, MongoTxn};

use crate::support::eventually;
use crate::support::mongo_set::MongoSet;

const DATABASE: &str = "shop";

fn stock() -> ConsumerName {
    ConsumerName::new("stock").expect("a name")
}

/// A store, with a position that it owns.
async fn store(set: &MongoSet) -> (MongoStore, Ownership) {
    let store = MongoStore::connect(&set.url(DATABASE)).await.expect("a store");
    store.migrate().await.expect("the collections");
    let key = PositionKey { consumer: stock(), topic: "orders".into(), partition: 0 };
    let owner = store.acquire(&key).await.expect("the position");
    (store, owner)
}

async fn claim(store: &MongoStore) -> Claimed<MongoTxn> {
    let key = ReceiptKey::of(&stock(), &Tenant::none(), &MessageId::new("a").expect("an id"));
    let claims = [Claim { key, tenant: "", message_id: "a", set: &[], fingerprint: None }];
    store.claim(&stock(), &claims).await.expect("a claim")
}

/// Commits the claim, with the position.
async fn commit(store: &MongoStore, owner: &Ownership, claimed: Claimed<MongoTxn>) -> StoreResult<()> {
    let progress = Progress { next_offset: Some(1), ..Progress::default() };
    let advance =
        Advance { owner, progress, applied: 1, duplicates: Duplicates::default(), finished_attempt: None };
    store.commit(claimed.txn, Some(advance)).await
}

/// How many receipts a member has, whether or not the others have them too.
async fn receipts_at(set: &MongoSet, nth: usize, concern: ReadConcern) -> u64 {
    let url = format!("mongodb://{}/?directConnection=true", set.members[nth].address());
    let client = Client::with_uri_str(url).await.expect("a client");
    let inbox = client.database(DATABASE).collection::<Document>("oncebox_inbox");
    inbox.count_documents(doc! {}).read_concern(concern).await.unwrap_or_default()
}

/// The majority has it, and nobody has told the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_with_the_primary_is_known_to_the_next_one() {
    let (mut set, proxies) = MongoSet::start_behind_proxies().await;
    let (store, owner) = store(&set).await;
    let claimed = claim(&store).await;
    let primary = set.primary().await;
    proxies[primary].lose_answers(1);
    let committing = tokio::spawn({
        let (store, owner) = (store.clone(), owner.clone());
        async move { commit(&store, &owner, claimed).await }
    });
    eventually("the majority has the receipt", async || {
        receipts_at(&set, primary, ReadConcern::majority()).await == 1
    })
    .await;
    set.members[primary].kill();
    assert!(proxies[primary].lost() > 0, "its answer was on the way");
    committing.await.expect("no panic").expect("the next primary knows it");
    let next = set.primary().await;
    assert_ne!(next, primary);
    assert_eq!(claim(&store).await.fresh, [false]);
    assert_eq!(receipts_at(&set, next, ReadConcern::local()).await, 1);
    assert_eq!(store.acquire(&owner.key).await.expect("the position").commits, 1);
}

/// Only the primary has it, and it is taken back when the others have elected another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_only_the_old_primary_has_is_gone_and_its_message_fresh_once_more() {
    let set = MongoSet::start_for_tests().await;
    let (store, owner) = store(&set).await;
    let claimed = claim(&store).await;
    let primary = set.primary().await;
    let others: Vec<usize> = (0..set.members.len()).filter(|nth| *nth != primary).collect();
    for nth in &others {
        set.copies(*nth, false).await;
    }
    let committing = tokio::spawn({
        let (store, owner) = (store.clone(), owner.clone());
        async move { commit(&store, &owner, claimed).await }
    });
    eventually("the primary has the receipt", async || {
        receipts_at(&set, primary, ReadConcern::local()).await == 1
    })
    .await;
    assert!(!committing.is_finished(), "nobody else has it");
    set.members[primary].freeze();
    for nth in &others {
        set.copies(*nth, true).await;
    }
    let next = set.primary().await;
    assert_ne!(next, primary);
    set.members[primary].thaw();
    let error = committing.await.expect("no panic").expect_err("it is gone");
    assert_eq!(error.class, ErrorClass::Away, "no message is to blame: {error}");
    set.is_whole().await;
    assert_eq!(receipts_at(&set, next, ReadConcern::local()).await, 0);

    let again = claim(&store).await;
    assert_eq!(again.fresh, [true]);
    commit(&store, &owner, again).await.expect("the batch runs again");
    assert_eq!(claim(&store).await.fresh, [false]);
    for nth in 0..set.members.len() {
        eventually("every member has one receipt", async || {
            receipts_at(&set, nth, ReadConcern::local()).await == 1
        })
        .await;
    }
}
