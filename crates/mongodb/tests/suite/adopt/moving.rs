//! From an adopted collection to oncebox's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mongodb::bson::{DateTime, Document, doc};
use oncebox_core::store::{Adopting, CopyFrom, ErrorClass, PageMark, Store, Switched};
use oncebox_mongodb::MongoStore;

use super::super::support::{Verdict, apply, stock};
use super::by_hand::{Old, OldProcess, Shop, adopt, claim, ids, inbox_event, new_apply};

async fn copy_all(shop: &Shop, from: CopyFrom<'_>) -> Result<(u64, usize), oncebox_core::error::BoxError> {
    let (mut next, mut written, mut pages) = (Some(PageMark::default()), 0, 0);
    while let Some(page) = next {
        let copied = shop.store.copy_receipts(from, &page).await?;
        written += copied.written;
        next = copied.next;
        pages += 1;
    }
    Ok((written, pages))
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_slips_past_the_move_to_our_own_collection() -> Verdict {
    let shop = inbox_event().await;
    let mapping = shop.store.adopted().ok_or("nothing is adopted")?.clone();
    let (stock, at) = (stock(), DateTime::from_millis(1_700_000_000_123));
    let from = CopyFrom { adopt: &mapping, consumer: Some(&stock), dry_run: false };
    let old: Vec<Document> =
        (0..1800).map(|n| doc! { "_id": format!("old-{n}"), "receivedAt": at }).collect();
    shop.collection("inbox_event").insert_many(old).await?;
    for (dry_run, expected) in [(true, 1800), (false, 1800), (false, 0)] {
        let (written, pages) = copy_all(&shop, CopyFrom { dry_run, ..from }).await?;
        assert_eq!(written, expected);
        assert!(pages > 2, "in bounded steps");
    }
    let written = Arc::new(AtomicUsize::new(0));
    let (mut process, count) = (OldProcess::start(&shop).await, Arc::clone(&written));
    let old = tokio::spawn(async move {
        loop {
            let nth = count.load(Ordering::SeqCst);
            match process.apply(Old::TwoSteps, &format!("new-{nth}")).await {
                Ok(_) => count.fetch_add(1, Ordering::SeqCst),
                Err(error) => break MongoStore::classify(&error),
            };
        }
    });
    while written.load(Ordering::SeqCst) < 50 {
        tokio::task::yield_now().await;
    }
    assert!(!shop.store.is_switched(&mapping).await?);
    let Switched::Now { name, .. } = shop.store.switch_receipts(from).await? else {
        return Err("it was now".into());
    };
    assert_eq!(name, "inbox_event", "a new name would stop nobody");
    assert!(shop.store.is_switched(&mapping).await?);
    assert_eq!(old.await?, ErrorClass::Failed, "the old code fails loudly");
    let there = shop.documents("inbox_event").await.len();
    assert_eq!(there, 1800 + written.load(Ordering::SeqCst));
    let own = shop.collection("oncebox_inbox");
    assert_eq!(own.count_documents(doc! { "consumer": "stock" }).await?, there as u64);
    assert_eq!(own.count_documents(doc! { "processed_at": at }).await?, 1800);
    assert_eq!(shop.store.switch_receipts(from).await?, Switched::Before);

    // A process that ended between the switch and the copying is followed by one that goes on.
    own.delete_one(doc! { "message_id": "old-7" }).await?;
    let left = shop.store.switch_receipts(from).await?;
    assert_eq!(left, Switched::Now { written: 1, name: "inbox_event".to_owned() });

    // An oncebox that goes on with the old configuration stands still, with the reason.
    for _ in 0..2 {
        let error = claim(&shop.store, "stock", &ids(&["later"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Environment, "{error}");
        assert!(error.to_string().contains("remove [store.adopt]"), "{error}");
    }
    assert_eq!(apply(&shop.temporary.store(), &["old-0", "new-0", "later"]).await?, [false, false, true]);
    Ok(())
}

/// The switch waits for who has touched the collection, and then sees what that one wrote.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_open_is_copied_too() -> Verdict {
    let shop = inbox_event().await;
    let mapping = shop.store.adopted().ok_or("nothing is adopted")?.clone();
    let mut process = OldProcess::start(&shop).await;
    assert!(process.begin(Old::InsertFirst, "open").await?);
    let (store, stock) = (shop.store.clone(), stock());
    let switch = tokio::spawn(async move {
        store.switch_receipts(CopyFrom { adopt: &mapping, consumer: Some(&stock), dry_run: false }).await
    });
    process.effect(Old::InsertFirst, "open").await?;
    process.session.commit_transaction().await?;
    assert_eq!(switch.await??, Switched::Now { written: 1, name: "inbox_event".to_owned() });
    assert_eq!(apply(&shop.temporary.store(), &["open"]).await?, [false]);
    Ok(())
}

/// Ids of several kinds, ids that no message can have, and other consumers.
#[tokio::test]
async fn what_no_message_can_be_is_left_out() -> Verdict {
    let mapping = adopt("inbox", "_id").consumer("consumer")?.tenant("tenant")?.id_format("text".parse()?);
    let shop = Shop::new(mapping.clone()).await;
    shop.collection("inbox")
        .insert_many([
            doc! { "_id": "a", "consumer": "stock", "tenant": "acme" },
            doc! { "_id": "b", "consumer": "billing" },
            doc! { "_id": "", "consumer": "stock" },
            doc! { "_id": 7, "consumer": "stock" },
            doc! { "_id": "c" },
        ])
        .await?;
    let from = CopyFrom { adopt: &mapping, consumer: None, dry_run: false };
    let copied = shop.store.copy_receipts(from, &PageMark::default()).await?;
    assert_eq!((copied.seen, copied.written, copied.skipped), (5, 2, 3));
    let page = copied.next.ok_or("there is a next page")?;
    assert_eq!(shop.store.copy_receipts(from, &page).await?.next, None);
    assert_eq!(new_apply(&shop.temporary.store(), &["a"]).await, [true], "it was a tenant's");
    Ok(())
}
