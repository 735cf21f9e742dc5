//! Receipts in partitions by day.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oncebox_core::store::{ErrorClass, Status, Store};
use oncebox_postgres::PgStore;
use support::{apply, claims, consumer, execute, number, purge, with_store};
use uuid::Uuid;

const DAY: u64 = 86_400;

/// A UUIDv7 of a time that lies so many days from now.
fn id_of_day(days: i64) -> &'static str {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seconds = now.saturating_add_signed(days * DAY.cast_signed());
    let id = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, 0)).to_string();
    Box::leak(id.into_boxed_str())
}

async fn rows(store: &PgStore, table: &str) -> i64 {
    number(store, &format!("SELECT count(*) FROM {table}")).await
}

/// The partition of the day that lies so many days from now.
async fn day(store: &PgStore, days: i64) -> String {
    let sql =
        format!("SELECT to_char((now() AT TIME ZONE 'UTC') + {days} * interval '1 day', 'YYYYMMDD')::bigint");
    format!("oncebox_inbox_{}", number(store, &sql).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_table_becomes_partitions_and_keeps_its_receipts() {
    with_store(|store, _| async move {
        let ids = ["a", "b", id_of_day(0), id_of_day(-30), id_of_day(1)];
        apply(&store, &ids).await;
        execute(&store, "GRANT SELECT ON oncebox_inbox TO pg_monitor").await;
        let done = store.partition_receipts().await.unwrap();
        assert!(done.converted && done.created == 9 && done.moved >= 5, "{done:?}");
        assert_eq!(rows(&store, "oncebox_inbox_other").await, 2);
        assert_eq!(rows(&store, "oncebox_inbox_default").await, 1);
        assert_eq!(rows(&store, &day(&store, 0).await).await, 1);
        assert_eq!(apply(&store, &ids).await, [false; 5], "duplicates are found in every partition");
        assert_eq!(apply(&store, &[id_of_day(0), "c"]).await, [true, true]);
        let readable = "SELECT has_table_privilege('pg_monitor', 'oncebox_inbox', 'SELECT')::int::bigint";
        assert_eq!(number(&store, readable).await, 1);
        let again = store.partition_receipts().await.unwrap();
        assert_eq!((again.converted, again.created, again.moved), (false, 0, 0));
        store.status(10).await.unwrap();
        assert!(store.migrate().await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_may_partition_at_once() {
    with_store(|store, _| async move {
        let running: Vec<_> = (0..6)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.partition_receipts().await.unwrap() })
            })
            .collect();
        let (mut converted, mut created) = (0, 0);
        for one in running {
            let one = one.await.unwrap();
            converted += u32::from(one.converted);
            created += one.created;
        }
        assert_eq!((converted, created), (1, 9));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_that_came_before_their_day_move_into_it() {
    with_store(|store, _| async move {
        store.partition_receipts().await.unwrap();
        let last = day(&store, 7).await;
        execute(&store, &format!("DROP TABLE {last}")).await;
        let early = id_of_day(7);
        apply(&store, &[early, id_of_day(20)]).await;
        assert_eq!(rows(&store, "oncebox_inbox_default").await, 2);
        let done = store.partition_receipts().await.unwrap();
        assert_eq!((done.created, done.moved), (1, 1));
        assert_eq!((rows(&store, "oncebox_inbox_default").await, rows(&store, &last).await), (1, 1));
        assert_eq!(apply(&store, &[early]).await, [false]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_drops_a_day_of_which_nothing_has_to_stay() {
    with_store(|store, _| async move {
        store.partition_receipts().await.unwrap();
        let (yesterday, today) = (day(&store, -1).await, day(&store, 0).await);
        let old = [id_of_day(-1), id_of_day(-1), id_of_day(0), "other"];
        apply(&store, &old).await;
        execute(&store, "UPDATE oncebox_inbox SET processed_at = now() - interval '3 hours'").await;
        let nothing = Duration::from_secs(1);

        let dry = purge(&store, nothing, true).await.unwrap();
        assert_eq!((dry.partitions, dry.receipts >= 4), (1, true), "{dry:?}");

        // A receipt of a consumer that nobody named stays, and the day with it; so does one that is too young.
        execute(
            &store,
            &format!("UPDATE {yesterday} SET consumer = 'billing' WHERE message_id = '{}'", old[0]),
        )
        .await;
        let purged = purge(&store, nothing, false).await.unwrap();
        assert_eq!((purged.partitions, purged.receipts), (0, 3));
        assert_eq!(rows(&store, &yesterday).await, 1);

        let late = id_of_day(-1);
        execute(&store, "DELETE FROM oncebox_inbox WHERE consumer = 'billing'").await;
        apply(&store, &[late]).await;
        assert_eq!(purge(&store, Duration::from_secs(600), false).await.unwrap().partitions, 0);
        assert_eq!(apply(&store, &[late]).await, [false]);

        execute(&store, &format!("UPDATE {yesterday} SET processed_at = now() - interval '3 hours'")).await;
        let purged = purge(&store, nothing, false).await.unwrap();
        assert_eq!((purged.partitions, purged.receipts), (1, 1));
        assert_eq!(number(&store, &format!("SELECT count(to_regclass('{yesterday}'))")).await, 0);
        assert_eq!(rows(&store, &today).await, 0);
        assert_eq!(apply(&store, &[late]).await, [true], "it falls into the default partition now");
        assert_eq!(apply(&store, &[late]).await, [false]);
    })
    .await;
}

/// Claims receipts of all days until it is told to stop; returns how many were fresh.
async fn write(store: PgStore, stop: Arc<AtomicBool>) -> usize {
    let mut fresh = 0;
    while !stop.load(Ordering::Relaxed) {
        let ids: Vec<_> = (0..20).map(|_| id_of_day(fastrand::i64(-1..=8))).collect();
        // A partition may come or go right now; that is the database's trouble, and tried again.
        match store.claim(&consumer(), &claims(&ids)).await {
            Ok(claimed) => {
                store.commit(claimed.txn, None).await.unwrap();
                fresh += claimed.fresh.iter().filter(|fresh| **fresh).count();
            }
            Err(error) => assert_eq!(error.class, ErrorClass::Transient, "{error}"),
        }
    }
    fresh
}

#[tokio::test(flavor = "multi_thread")]
async fn days_come_and_go_under_traffic() {
    with_store(|store, _| async move {
        store.partition_receipts().await.unwrap();
        execute(&store, "CREATE TABLE put_aside (LIKE oncebox_inbox)").await;
        let last = day(&store, 7).await;
        let forget_last_day = format!(
            "BEGIN; LOCK TABLE oncebox_inbox; INSERT INTO put_aside SELECT * FROM {last}; DROP TABLE {last}; \
             INSERT INTO oncebox_inbox SELECT * FROM put_aside; TRUNCATE put_aside; COMMIT"
        );
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3).map(|_| tokio::spawn(write(store.clone(), stop.clone()))).collect();
        let mut purged = 0;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            execute(&store, &forget_last_day).await;
            while let Err(error) = store.partition_receipts().await {
                assert_eq!(error.class, ErrorClass::Transient, "{error}");
            }
            purged += purge(&store, Duration::from_millis(1), false).await.unwrap().receipts;
        }
        stop.store(true, Ordering::Relaxed);
        let mut fresh = 0;
        for writer in writers {
            fresh += i64::try_from(writer.await.unwrap()).unwrap();
        }
        assert_eq!(
            rows(&store, "oncebox_inbox").await + purged.cast_signed(),
            fresh,
            "none lost, none doubled"
        );
        assert!(purged > 0);
    })
    .await;
}
