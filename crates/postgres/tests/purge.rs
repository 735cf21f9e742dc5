//! Retention against a real server: clocks that are wrong, days that cannot be dropped.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use std::time::Duration;

use oncebox_core::clock::Clock;
use oncebox_core::store::{PassEnd, Positions, Progress, Purge, PurgePass, PurgeProgress, Purged, Retention};
use oncebox_postgres::PgStore;
use sqlx::{Connection, PgConnection};
use support::{apply, consumer, execute, number, position, purge, with_store};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const DAY: Duration = Duration::from_secs(86_400);
const DAY_MS: i64 = 86_400_000;

/// A pass by a process whose clock shows another time.
async fn purge_at(store: &PgStore, now_ms: i64) -> Purged {
    let retention = [Retention { consumer: consumer(), keep: 7 * DAY }];
    let (stop, progress) = (CancellationToken::new(), |_: PurgeProgress| {});
    let pass = PurgePass { retention: &retention, now_ms, dry_run: false, stop: &stop, progress: &progress };
    store.purge(pass).await.unwrap()
}

async fn caught_up(store: &PgStore, caught_up_ms: i64) {
    let owner = store.acquire(&position()).await.unwrap();
    let progress = Progress { caught_up_ms: Some(caught_up_ms), ..Progress::default() };
    store.record_progress(&owner, progress).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_single_clock_empties_the_table() {
    with_store(|store, _| async move {
        let now = Clock::system().now_ms();
        apply(&store, &["young"]).await;
        apply(&store, &["old"]).await;
        execute(
            &store,
            "UPDATE oncebox_inbox SET processed_at = now() - interval '8 days' WHERE message_id = 'old'",
        )
        .await;
        // The process is years ahead, or at the end of time: the database's clock counts.
        let kept = "SELECT count(*) FROM oncebox_inbox WHERE message_id = 'young'";
        caught_up(&store, i64::MAX).await;
        for ahead in [now + 10_000 * DAY_MS, i64::MAX] {
            purge_at(&store, ahead).await;
            assert_eq!(number(&store, kept).await, 1);
        }
        // A time up to which a partition is caught up is never later than the database's own, and one that was written
        // before that clock was set back does not count.
        let later = "SELECT count(*) FROM oncebox_position WHERE caught_up_at > clock_timestamp()";
        assert_eq!(number(&store, later).await, 0);
        execute(&store, "UPDATE oncebox_position SET caught_up_at = now() + interval '10 years'").await;
        purge_at(&store, now + 10_000 * DAY_MS).await;
        assert_eq!(number(&store, kept).await, 1);
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_inbox").await, 1, "the old one is gone");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_clock_is_behind_keeps_more() {
    with_store(|store, _| async move {
        let now = Clock::system().now_ms();
        caught_up(&store, now).await;
        apply(&store, &["a"]).await;
        execute(&store, "UPDATE oncebox_inbox SET processed_at = now() - interval '8 days'").await;
        for behind in [now - 2 * DAY_MS, 0, i64::MIN] {
            assert_eq!(purge_at(&store, behind).await.receipts, 0, "{behind}");
        }
        assert_eq!(purge_at(&store, now).await.receipts, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_dated_by_the_later_clock() {
    with_store(|store, _| async move {
        let before = Clock::system().now_ms();
        apply(&store, &["a"]).await;
        let at =
            number(&store, "SELECT (extract(epoch FROM processed_at) * 1000)::bigint FROM oncebox_inbox")
                .await;
        assert!(at >= before, "{at} < {before}");
    })
    .await;
}

/// A UUIDv7 of yesterday.
fn yesterdays_id() -> &'static str {
    let seconds = (Clock::system().now_ms() - DAY_MS) / 1000;
    let time = uuid::Timestamp::from_unix(uuid::NoContext, seconds.unsigned_abs(), 0);
    Box::leak(Uuid::new_v7(time).to_string().into_boxed_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_that_cannot_be_dropped_stops_nothing_else() {
    with_store(|store, url| async move {
        store.partition_receipts().await.unwrap();
        let day = number(
            &store,
            "SELECT to_char((now() AT TIME ZONE 'UTC') - interval '1 day', 'YYYYMMDD')::bigint",
        )
        .await;
        // Somebody reads it for long; then something depends on it.
        let mut reader = PgConnection::connect(&url).await.unwrap();
        let mut reading = reader.begin().await.unwrap();
        for round in ["is in use", "has a view"] {
            apply(&store, &[yesterdays_id(), Box::leak(round.to_owned().into_boxed_str())]).await;
            execute(&store, "UPDATE oncebox_inbox SET processed_at = now() - interval '3 days'").await;
            if round == "is in use" {
                let read = format!("SELECT count(*) FROM oncebox_inbox_{day}");
                sqlx::raw_sql(sqlx::AssertSqlSafe(read)).execute(&mut *reading).await.unwrap();
            } else {
                execute(&store, &format!("CREATE VIEW days AS SELECT * FROM oncebox_inbox_{day}")).await;
            }
            let purged = purge(&store, Duration::from_secs(1), false).await.unwrap();
            assert_eq!(
                (purged.partitions, purged.receipts, purged.end),
                (0, 2, PassEnd::Finished),
                "{round}"
            );
            if round == "is in use" {
                sqlx::raw_sql("ROLLBACK").execute(&mut *reading).await.unwrap();
            }
        }
        execute(&store, "DROP VIEW days").await;
        assert_eq!(purge(&store, Duration::from_secs(1), false).await.unwrap().partitions, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_set_back_does_not_keep_a_dead_purger_alive() {
    with_store(|store, _| async move {
        let take = |until: &str| {
            format!("UPDATE oncebox_purge SET owner = gen_random_uuid(), leased_until = clock_timestamp() + {until}")
        };
        execute(&store, &take("interval '1 minute'")).await;
        assert_eq!(purge(&store, DAY, false).await.unwrap().end, PassEnd::Elsewhere);
        execute(&store, &take("interval '10 days'")).await;
        assert_eq!(purge(&store, DAY, false).await.unwrap().end, PassEnd::Finished);
    })
    .await;
}
