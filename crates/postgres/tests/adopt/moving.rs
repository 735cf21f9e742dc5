//! From an adopted table to oncebox's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Adopting, CopyFrom, ErrorClass, PageMark, Store, Switched};
use oncebox_postgres::PgStore;
use sqlx::{Connection, PgConnection};

use super::{Shop, adopt, claim, ids};

const TABLE: &str = "CREATE TABLE inbox (event_id uuid PRIMARY KEY, processed_at timestamptz NOT NULL DEFAULT now()); \
     INSERT INTO inbox SELECT gen_random_uuid(), now() - interval '3 days' FROM generate_series(1, 20000)";

const LACKING: &str = "SELECT event_id::text FROM inbox WHERE NOT EXISTS \
     (SELECT FROM oncebox_inbox o WHERE o.message_id = event_id::text AND o.consumer = 'stock' \
      AND o.processed_at = inbox.processed_at)";

async fn copy_all(store: &PgStore, from: CopyFrom<'_>) -> (u64, u64) {
    let (mut next, mut written, mut pages) = (Some(PageMark::default()), 0, 0);
    while let Some(page) = next {
        let copied = store.copy_receipts(from, &page).await.unwrap();
        written += copied.written;
        next = copied.next;
        pages += 1;
    }
    (written, pages)
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_are_copied_with_their_time_and_as_often_as_wanted() {
    let mapping = adopt("inbox", "event_id").processed_at("processed_at").unwrap();
    let shop = Shop::new(TABLE, mapping.clone()).await;
    let stock = ConsumerName::new("stock").unwrap();
    let from = CopyFrom { adopt: &mapping, consumer: Some(&stock), dry_run: false };
    let counted = copy_all(&shop.store, CopyFrom { dry_run: true, ..from }).await;
    assert_eq!(counted.0, 20_000);
    assert!(counted.1 > 1, "in bounded steps");
    assert_eq!(shop.texts("SELECT message_id FROM oncebox_inbox").await.len(), 0);
    assert_eq!(copy_all(&shop.store, from).await.0, 20_000);
    assert_eq!(copy_all(&shop.store, from).await.0, 0);
    assert_eq!(shop.texts(LACKING).await, [""; 0]);

    // The store that has its own table now finds them there.
    let own = PgStore::connect(&shop.database.url).await.unwrap();
    let id = shop.texts("SELECT event_id::text FROM inbox LIMIT 1").await;
    assert_eq!(claim(&own, "stock", &ids(&[&id[0]])).await.unwrap().fresh, [false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_slips_past_a_switch_under_load() {
    let mapping = adopt("inbox", "event_id").processed_at("processed_at").unwrap();
    let shop = Shop::new(TABLE, mapping.clone()).await;
    let stock = ConsumerName::new("stock").unwrap();
    let from = CopyFrom { adopt: &mapping, consumer: Some(&stock), dry_run: false };
    copy_all(&shop.store, from).await;
    // The old code goes on until its table is gone.
    let written = Arc::new(AtomicUsize::new(0));
    let old = (0..3).map(|_| {
        let (url, written) = (shop.database.url.clone(), Arc::clone(&written));
        tokio::spawn(async move {
            let mut conn = PgConnection::connect(&url).await.unwrap();
            loop {
                let insert = "INSERT INTO inbox (event_id) VALUES (gen_random_uuid())";
                match sqlx::query(insert).persistent(false).execute(&mut conn).await {
                    Ok(_) => written.fetch_add(1, Ordering::SeqCst),
                    Err(sqlx::Error::Database(e)) => break e.code().map(|code| code.into_owned()),
                    Err(e) => panic!("{e}"),
                };
            }
        })
    });
    let old: Vec<_> = old.collect();
    while written.load(Ordering::SeqCst) < 100 {
        tokio::task::yield_now().await;
    }
    let switched = shop.store.switch_receipts(from).await.unwrap();
    let Switched::Now { name, .. } = &switched else { panic!("{switched:?}") };
    assert_eq!(name, "inbox_adopted");
    for task in old {
        assert_eq!(task.await.unwrap().as_deref(), Some("42P01"), "the old code fails loudly");
    }
    assert!(written.load(Ordering::SeqCst) >= 100);
    let lacking = LACKING.replace("FROM inbox", "FROM inbox_adopted AS inbox");
    assert_eq!(shop.texts(&lacking).await, [""; 0]);
    let total = shop.texts("SELECT event_id::text FROM inbox_adopted").await.len();
    assert_eq!(total, 20_000 + written.load(Ordering::SeqCst));
    assert_eq!(shop.store.switch_receipts(from).await.unwrap(), Switched::Before);
    // The daemon that still has the old configuration stands still instead of applying anything.
    let error = shop.claim("stock", &ids(&["01890a5d-ac96-774b-bcce-b302099a8057"])).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Environment);
    assert_eq!(shop.store.adopted(), Some(&mapping));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_can_ask_for_is_skipped() {
    let table = "CREATE TABLE inbox (id text, consumer text, at timestamptz, UNIQUE (id, consumer)); \
         INSERT INTO inbox VALUES ('a', 'stock', 'infinity'), ('', 'stock', now()), (repeat('x', 513), 'stock', now()), ('a', 'on paid', now())";
    let mapping = adopt("inbox", "id").consumer("consumer").unwrap().processed_at("at").unwrap();
    let shop = Shop::new(table, mapping.clone()).await;
    let from = CopyFrom { adopt: &mapping, consumer: None, dry_run: false };
    let copied = shop.store.copy_receipts(from, &PageMark::default()).await.unwrap();
    assert_eq!((copied.seen, copied.written, copied.skipped, copied.next), (4, 1, 3, None));
}
