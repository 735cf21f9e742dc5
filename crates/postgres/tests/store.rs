//! The hot path against a real server: what happens when transactions meet, die or are taken over.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use std::time::Duration;

use oncebox_core::store::{Advance, ErrorClass, Positions, Progress, Status, Store};
use oncebox_postgres::PgStore;
use sqlx::Connection;
use support::{
    advance, apply, claims, consumer, execute, number, position, purge, with_database, with_store,
};
use tokio::time::sleep;

fn begin_at(next_offset: i64) -> Progress<'static> {
    Progress { next_offset: Some(next_offset), ..Progress::default() }
}

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_second_copy_is_not_fresh() {
    with_store(|store, _| async move {
        assert_eq!(apply(&store, &["a", "b"]).await, [true, true]);
        assert_eq!(apply(&store, &["c", "b", "a"]).await, [true, false, false]);
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_inbox").await, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_copy_waits_and_goes_by_how_the_first_one_ends() {
    with_store(|store, _| async move {
        for commits in [true, false] {
            let id = if commits { "committed" } else { "rolled back" };
            let first = store.claim(&consumer(), &claims(&[id])).await.unwrap();
            let second = {
                let store = store.clone();
                tokio::spawn(async move { store.claim(&consumer(), &claims(&[id])).await.unwrap() })
            };
            sleep(SHORT).await;
            assert!(!second.is_finished(), "the copy must wait");
            if commits {
                store.commit(first.txn, None).await.unwrap();
            } else {
                store.rollback(first.txn).await;
            }
            let second = second.await.unwrap();
            assert_eq!(second.fresh, [!commits]);
            store.commit(second.txn, None).await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_too_long_is_transient_and_never_a_duplicate() {
    with_database(|url| async move {
        let store = PgStore::builder(&url).lock_timeout(SHORT).connect().await.unwrap();
        store.migrate().await.unwrap();
        let first = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let second = store.claim(&consumer(), &claims(&["a"])).await.unwrap_err();
        assert_eq!(second.class, ErrorClass::Transient);
        store.rollback(first.txn).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_in_reversed_order_do_not_deadlock() {
    with_store(|store, _| async move {
        let ids: Vec<&'static str> =
            (0..400).map(|i| &*Box::leak(format!("id-{i}").into_boxed_str())).collect();
        for round in 0..10 {
            execute(&store, "TRUNCATE oncebox_inbox").await;
            let both: Vec<_> = [false, true]
                .into_iter()
                .map(|reversed| {
                    let (store, mut ids) = (store.clone(), ids.clone());
                    if reversed {
                        ids.reverse();
                    }
                    tokio::spawn(
                        async move { apply(&store, &ids).await.iter().filter(|fresh| **fresh).count() },
                    )
                })
                .collect();
            let mut fresh = 0;
            for one in both {
                fresh += one.await.unwrap();
            }
            assert_eq!(fresh, ids.len(), "round {round}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_default_isolation_does_not_matter() {
    with_store(|store, url| async move {
        let name = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
        execute(&store, &format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"))
            .await;
        let store = PgStore::connect(&url).await.unwrap();
        let first = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let second = {
            let store = store.clone();
            tokio::spawn(async move { store.claim(&consumer(), &claims(&["a"])).await })
        };
        sleep(SHORT).await;
        store.commit(first.txn, None).await.unwrap();
        assert_eq!(second.await.unwrap().unwrap().fresh, [false]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_transaction_closes_its_connection() {
    with_store(|store, _| async move {
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let pid: i32 =
            sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *claimed.txn).await.unwrap();
        drop(claimed);
        let alive = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
        for _ in 0..50 {
            if number(&store, &alive).await == 0 {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(number(&store, &alive).await, 0, "the backend must be gone");
        assert_eq!(apply(&store, &["a"]).await, [true], "and its receipt with it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_connection_is_used_again_in_good_order() {
    with_database(|url| async move {
        let store = PgStore::builder(&url).max_connections(1).connect().await.unwrap();
        store.migrate().await.unwrap();
        let mut pids = Vec::new();
        for _ in 0..20 {
            let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
            pids.push(
                sqlx::query_scalar::<_, i32>("SELECT pg_backend_pid()")
                    .fetch_one(&mut *claimed.txn)
                    .await
                    .unwrap(),
            );
            store.commit(claimed.txn, None).await.unwrap();
        }
        pids.dedup();
        assert_eq!(pids.len(), 1);
        let mut plain = store.pool().acquire().await.unwrap();
        assert!(!plain.is_in_transaction());
        let mut own = plain.begin().await.unwrap();
        sqlx::query("SELECT 1").execute(&mut *own).await.unwrap();
        own.commit().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_own_transaction_is_a_savepoint() {
    with_store(|store, _| async move {
        execute(&store, "CREATE TABLE effect (n int)").await;
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let mut inner = claimed.txn.begin().await.unwrap();
        sqlx::query("INSERT INTO effect VALUES (1)").execute(&mut *inner).await.unwrap();
        inner.commit().await.unwrap();
        let mut inner = claimed.txn.begin().await.unwrap();
        sqlx::query("INSERT INTO effect VALUES (2)").execute(&mut *inner).await.unwrap();
        drop(inner);
        assert_eq!(number(&store, "SELECT count(*) FROM effect").await, 0, "nothing is committed yet");
        store.commit(claimed.txn, None).await.unwrap();
        assert_eq!(number(&store, "SELECT count(*) FROM effect").await, 1);
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_inbox").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_cannot_end_the_transaction_unnoticed() {
    with_store(|store, _| async move {
        let owner = store.acquire(&position()).await.unwrap();
        let ends = [
            ("ROLLBACK", ErrorClass::Failed),
            ("ROLLBACK; BEGIN", ErrorClass::Failed),
            ("COMMIT", ErrorClass::Torn),
            ("COMMIT; BEGIN", ErrorClass::Torn),
        ];
        for (end, class) in ends {
            for advancing in [true, false] {
                let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
                assert_eq!(claimed.fresh, [true], "{end}");
                sqlx::raw_sql(end).execute(&mut *claimed.txn).await.unwrap();
                let advance = if advancing { advance(&owner, 1) } else { None };
                let error = store.commit(claimed.txn, advance).await.unwrap_err();
                assert_eq!(error.class, class, "{end}: {error}");
                execute(&store, "DELETE FROM oncebox_inbox").await;
            }
            for fails in [true, false] {
                let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
                sqlx::raw_sql(end).execute(&mut *claimed.txn).await.unwrap();
                if fails {
                    sqlx::raw_sql("SELECT 1 / 0").execute(&mut *claimed.txn).await.unwrap_err();
                }
                let undone = store.undo(claimed.txn).await;
                assert_eq!(
                    undone.is_err_and(|e| e.class == ErrorClass::Torn),
                    class == ErrorClass::Torn,
                    "{end}"
                );
                execute(&store, "DELETE FROM oncebox_inbox").await;
            }
        }
        // And nobody else is taken for one who has.
        for _ in 0..3 {
            let claimed = store.claim(&consumer(), &claims(&["b"])).await.unwrap();
            store.undo(claimed.txn).await.unwrap();
            let mut claimed = store.claim(&consumer(), &claims(&["c"])).await.unwrap();
            sqlx::raw_sql("SELECT 1 / 0").execute(&mut *claimed.txn).await.unwrap_err();
            store.undo(claimed.txn).await.unwrap();
            let claimed = store.claim(&consumer(), &[]).await.unwrap();
            store.commit(claimed.txn, None).await.unwrap();
        }
        assert_eq!(
            number(&store, "SELECT count(*) FROM oncebox_position WHERE next_offset IS NULL").await,
            1
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swallowed_error_does_not_commit() {
    with_store(|store, _| async move {
        let owner = store.acquire(&position()).await.unwrap();
        for advancing in [true, false] {
            let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
            assert_eq!(claimed.fresh, [true]);
            sqlx::query("SELECT 1 / 0").execute(&mut *claimed.txn).await.unwrap_err();
            let advance = if advancing { advance(&owner, 1) } else { None };
            assert_eq!(store.commit(claimed.txn, advance).await.unwrap_err().class, ErrorClass::Failed);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_constraint_fails_the_commit_and_blames_the_message() {
    with_store(|store, _| async move {
        execute(&store, "CREATE TABLE parent (id int PRIMARY KEY)").await;
        execute(&store, "CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)").await;
        let owner = store.acquire(&position()).await.unwrap();
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        sqlx::query("INSERT INTO child VALUES (1)").execute(&mut *claimed.txn).await.unwrap();
        let error = store.commit(claimed.txn, advance(&owner, 1)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Failed, "{error}");
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_inbox").await, 0);
        assert_eq!(number(&store, "SELECT count(next_offset) FROM oncebox_position").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_was_replaced_cannot_commit() {
    with_store(|store, _| async move {
        let zombie = store.acquire(&position()).await.unwrap();
        let claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let owner = store.acquire(&position()).await.unwrap();
        assert_eq!((zombie.epoch, owner.epoch, owner.starts), (1, 2, 2));
        let error = store.commit(claimed.txn, advance(&zombie, 8)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Fenced, "{error}");
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_inbox").await, 0);
        assert_eq!(store.record_progress(&zombie, begin_at(3)).await.unwrap_err().class, ErrorClass::Fenced);
        assert_eq!(store.record_attempt(&zombie, 3).await.unwrap_err().class, ErrorClass::Fenced);
        store.release(&zombie).await.unwrap();
        assert_eq!(store.acquire(&position()).await.unwrap().starts, 3, "a zombie's release does nothing");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_advance_and_never_go_back() {
    with_store(|store, _| async move {
        let owner = store.acquire(&position()).await.unwrap();
        assert_eq!((owner.next_offset, owner.starts, owner.attempts_recorded), (None, 1, false));
        store.record_progress(&owner, begin_at(5)).await.unwrap();
        store.record_progress(&owner, begin_at(3)).await.unwrap();
        for next in [7, 6] {
            let claimed = store.claim(&consumer(), &[]).await.unwrap();
            store.commit(claimed.txn, advance(&owner, next)).await.unwrap();
        }
        assert_eq!(store.record_attempt(&owner, 7).await.unwrap(), 1);
        assert_eq!(store.record_attempt(&owner, 7).await.unwrap(), 2);
        let owner = store.acquire(&position()).await.unwrap();
        assert_eq!((owner.next_offset, owner.starts, owner.attempts_recorded), (Some(7), 1, true));
        let settle = Advance { finished_attempt: Some(7), ..advance(&owner, 8).unwrap() };
        let claimed = store.claim(&consumer(), &[]).await.unwrap();
        store.commit(claimed.txn, Some(settle)).await.unwrap();
        let owner = store.acquire(&position()).await.unwrap();
        assert_eq!((owner.next_offset, owner.starts, owner.attempts_recorded), (Some(8), 1, false));
        store.release(&owner).await.unwrap();
        let status = store.status(10).await.unwrap();
        assert_eq!((status.positions[0].applied, status.positions[0].starts), (3, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_went_back_to_an_older_state_fences_its_owner() {
    with_store(|store, _| async move {
        let owner = store.acquire(&position()).await.unwrap();
        store.record_progress(&owner, begin_at(5)).await.unwrap();
        let knows = |offset| Progress { at_least: Some(offset), ..begin_at(9) };
        assert_eq!(store.record_progress(&owner, knows(6)).await.unwrap_err().class, ErrorClass::Fenced);
        let claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let ahead = Advance { progress: knows(6), ..advance(&owner, 9).unwrap() };
        assert_eq!(store.commit(claimed.txn, Some(ahead)).await.unwrap_err().class, ErrorClass::Fenced);
        store.record_progress(&owner, knows(5)).await.unwrap();
        assert_eq!(number(&store, "SELECT next_offset FROM oncebox_position").await, 9);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_topic_names_are_quoted() {
    with_store(|store, _| async move {
        for topic in [r"it's", r"back\slash", r"\'; DROP TABLE oncebox_position; --", "ünï"] {
            let mut key = position();
            key.topic = topic.into();
            let owner = store.acquire(&key).await.unwrap();
            let claimed = store.claim(&consumer(), &[]).await.unwrap();
            store.commit(claimed.txn, advance(&owner, 9)).await.unwrap();
            assert_eq!(store.acquire(&key).await.unwrap().next_offset, Some(9), "{topic}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bare_claim_wants_a_transaction() {
    with_store(|store, _| async move {
        let mut conn = store.pool().acquire().await.unwrap();
        let error = store.claim_within(&mut conn, &consumer(), &claims(&["a"])).await.unwrap_err();
        assert!(error.to_string().contains("begin"), "{error}");
        let mut tx = store.pool().begin().await.unwrap();
        assert_eq!(
            store.claim_within(&mut tx, &consumer(), &claims(&["a", "b"])).await.unwrap(),
            [true, true]
        );
        assert_eq!(store.claim_within(&mut tx, &consumer(), &claims(&["b"])).await.unwrap(), [false]);
        tx.commit().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_primary_is_waited_for() {
    with_store(|store, url| async move {
        let name = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
        execute(&store, &format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
        let error = PgStore::connect(&url).await.unwrap_err();
        assert_eq!(error.code(), "away");
        assert!(error.to_string().contains("read-only"), "{error}");
        let lazy = PgStore::builder(&url).connect_lazy().unwrap();
        let error = lazy.claim(&consumer(), &claims(&["a"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Away);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_server_ends_blames_nobody_and_is_replaced() {
    with_store(|store, _| async move {
        let owner = store.acquire(&position()).await.unwrap();
        for in_handler in [true, false] {
            let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
            assert_eq!(claimed.fresh, [true]);
            let pid: i32 =
                sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *claimed.txn).await.unwrap();
            execute(&store, &format!("SELECT pg_terminate_backend({pid})")).await;
            sleep(Duration::from_millis(100)).await;
            let class = if in_handler {
                let error = sqlx::query("SELECT 1").execute(&mut *claimed.txn).await.unwrap_err();
                store.rollback(claimed.txn).await;
                PgStore::classify(&error)
            } else {
                store.commit(claimed.txn, advance(&owner, 1)).await.unwrap_err().class
            };
            assert_eq!(class, ErrorClass::Away, "the server was told to end it");
        }
        assert_eq!(apply(&store, &["a"]).await, [true]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_is_idle_for_too_long_counts_as_failed() {
    with_database(|url| async move {
        let store = PgStore::builder(&url).idle_in_transaction_timeout(SHORT).connect().await.unwrap();
        store.migrate().await.unwrap();
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        sleep(SHORT * 3).await;
        let error = sqlx::query("SELECT 1").execute(&mut *claimed.txn).await.unwrap_err();
        assert_eq!(PgStore::classify(&error), ErrorClass::Failed, "{error}");
        store.rollback(claimed.txn).await;
        assert_eq!(apply(&store, &["a"]).await, [true]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_may_purge_at_once() {
    with_store(|store, url| async move {
        execute(
            &store,
            "INSERT INTO oncebox_inbox (key, consumer, message_id, processed_at) SELECT gen_random_uuid(), 'stock', \
             i::text, now() - interval '2 days' FROM generate_series(1, 60000) i",
        )
        .await;
        let mut purging = Vec::new();
        for _ in 0..3 {
            let store = PgStore::connect(&url).await.unwrap();
            let day = Duration::from_secs(86_400);
            purging.push(tokio::spawn(async move { purge(&store, day, false).await.unwrap().receipts }));
        }
        let mut purged = 0;
        for one in purging {
            purged += one.await.unwrap();
        }
        assert_eq!(purged, 60_000, "each receipt is counted once");
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_inbox").await, 0);
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_horizon WHERE consumer = 'stock'").await, 1);
    })
    .await;
}
