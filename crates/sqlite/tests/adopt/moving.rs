//! From an adopted table to oncebox's own.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Adopting, CopyFrom, ErrorClass, PageMark, Switched};

use super::{Shop, adopt, claim, ids};

const TABLE: &str = "CREATE TABLE inbox (message_id TEXT PRIMARY KEY, processed_at TEXT);
     WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000)
     INSERT INTO inbox SELECT 'order-' || n, '2026-01-02 03:04:05' FROM n";

#[tokio::test]
async fn receipts_are_copied_and_then_switched() {
    let mapping = adopt("inbox", "message_id").processed_at("processed_at").unwrap();
    let shop = Shop::new(TABLE, mapping.clone()).await;
    let stock = ConsumerName::new("stock").unwrap();
    let from = CopyFrom { adopt: &mapping, consumer: Some(&stock), dry_run: false };
    for (dry_run, expected) in [(true, 5000), (false, 5000), (false, 0)] {
        let (mut next, mut written, mut pages) = (Some(PageMark::default()), 0, 0);
        while let Some(page) = next {
            let copied = shop.store.copy_receipts(CopyFrom { dry_run, ..from }, &page).await.unwrap();
            written += copied.written;
            next = copied.next;
            pages += 1;
        }
        assert_eq!(written, expected);
        assert!(pages > 2, "in bounded steps");
    }
    // What the old code writes meanwhile goes with the switch.
    shop.run("INSERT INTO inbox VALUES ('late', NULL)").await;
    let switched = shop.store.switch_receipts(from).await.unwrap();
    assert_eq!(switched, Switched::Now { written: 1, name: "inbox_adopted".to_owned() });
    assert_eq!(shop.store.switch_receipts(from).await.unwrap(), Switched::Before);
    assert_eq!(
        shop.texts("SELECT DISTINCT processed_at FROM oncebox_inbox WHERE message_id <> 'late'").await,
        ["2026-01-02T03:04:05.000Z"]
    );
    let error = claim(&shop.store, "stock", &ids(&["x"])).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Environment, "the table is gone: {error}");
    let own = shop.own().await;
    assert_eq!(
        claim(&own, "stock", &ids(&["late", "order-1", "x"])).await.unwrap().fresh,
        [false, false, true]
    );
}
