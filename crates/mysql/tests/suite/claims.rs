//! Receipts, beyond what every store must do.

use oncebox_core::store::Store;
use sqlx::{Connection, MySqlConnection};

use super::support::{apply, claim, claims, consumer, execute, number, with_store};

#[tokio::test]
async fn ids_are_compared_byte_for_byte() {
    with_store(|store, _| async move {
        assert_eq!(apply(&store, &["Same", "same", "same ", "sáme"]).await, [true; 4]);
        assert_eq!(apply(&store, &["same", "other", "same "]).await, [false, true, false]);
    })
    .await;
}

#[tokio::test]
async fn more_receipts_than_fit_into_one_message() {
    with_store(|store, _| async move {
        let ids: Vec<&'static str> =
            (0..3000).map(|n| &*Box::leak(format!("{n:0500}").into_boxed_str())).collect();
        assert_eq!(apply(&store, &ids[..2000]).await, vec![true; 2000]);
        let again = apply(&store, &ids).await;
        assert_eq!(again.iter().filter(|fresh| **fresh).count(), 1000);
        assert!(again[2000..].iter().all(|fresh| *fresh));
    })
    .await;
}

#[tokio::test]
async fn a_handlers_own_transaction_is_a_savepoint() {
    with_store(|store, url| async move {
        execute(&url, "CREATE TABLE effects (id INT)").await;
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let mut inner = claimed.txn.begin().await.unwrap();
        sqlx::raw_sql("INSERT INTO effects VALUES (1)").execute(&mut *inner).await.unwrap();
        inner.rollback().await.unwrap();
        let mut inner = claimed.txn.begin().await.unwrap();
        sqlx::raw_sql("INSERT INTO effects VALUES (2)").execute(&mut *inner).await.unwrap();
        inner.commit().await.unwrap();
        assert_eq!(number(&url, "SELECT COUNT(*) FROM effects").await, 0);
        store.commit(claimed.txn, None).await.unwrap();
        assert_eq!(number(&url, "SELECT MAX(id) FROM effects").await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_changes_the_database_and_the_session_leaves_nothing_behind() {
    with_store(|store, url| async move {
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let meddle = "USE information_schema; SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; \
             SET SESSION innodb_lock_wait_timeout = 1000, wait_timeout = 1000, sql_mode = '', time_zone = '-08:00'";
        sqlx::raw_sql(meddle).execute(&mut *claimed.txn).await.unwrap();
        store.commit(claimed.txn, None).await.unwrap();
        assert_eq!(apply(&store, &["a", "b"]).await, [false, true]);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_inbox").await, 2);
        let mut claimed = store.claim(&consumer(), &claims(&["c"])).await.unwrap();
        let sound = "SELECT @@sql_mode LIKE '%STRICT%' AND @@time_zone = '+00:00' AND @@innodb_lock_wait_timeout = 10";
        let sound: bool = sqlx::query_scalar(sound).fetch_one(&mut *claimed.txn).await.unwrap();
        assert!(sound);
        store.rollback(claimed.txn).await;
    })
    .await;
}

#[tokio::test]
async fn a_batch_reads_what_was_committed_meanwhile_whatever_the_servers_default_is() {
    with_store(|store, url| async move {
        execute(&url, "CREATE TABLE effects (id INT PRIMARY KEY)").await;
        // The first transaction of a connection, and a later one.
        for _ in 0..2 {
            let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
            for seen in 0..3 {
                // REPEATABLE READ, the default of both servers, would see none of them.
                let count = "SELECT COUNT(*) FROM effects";
                let count: i64 = sqlx::query_scalar(count).fetch_one(&mut *claimed.txn).await.unwrap();
                assert_eq!(count, seen);
                execute(&url, &format!("INSERT INTO effects VALUES ({seen})")).await;
            }
            store.rollback(claimed.txn).await;
            execute(&url, "DELETE FROM effects").await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_bare_claim_sees_what_was_committed_after_its_snapshot() {
    with_store(|store, url| async move {
        // REPEATABLE READ is the default of both servers.
        let mut conn = MySqlConnection::connect(&url).await.unwrap();
        let mut tx = conn.begin().await.unwrap();
        sqlx::raw_sql("SELECT COUNT(*) FROM oncebox_inbox").execute(&mut *tx).await.unwrap();
        assert_eq!(apply(&store, &["a"]).await, [true]);
        let fresh = store.claim_within(&mut tx, &consumer(), &[claim("a"), claim("b")]).await.unwrap();
        assert_eq!(fresh, [false, true]);
        tx.rollback().await.unwrap();
        assert_eq!(apply(&store, &["b"]).await, [true]);
    })
    .await;
}

#[tokio::test]
async fn the_procedure_and_the_store_know_each_others_receipts() {
    with_store(|store, url| async move {
        let ids = [
            "order-1",
            "01890a5d-ac96-774b-bcce-b302099a8057",
            "Größe ",
            "01890A5D-AC96-774B-BCCE-B302099A8057",
            "01890a5d-ac96-774b-bcce-b302099a8058\n",
        ];
        for id in ids {
            let call = format!("SET @fresh = NULL; CALL oncebox_claim('stock', '{id}', '', @fresh)");
            execute(&url, &call).await;
        }
        assert_eq!(apply(&store, &ids).await, [false; 5]);
    })
    .await;
}
