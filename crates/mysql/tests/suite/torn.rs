//! A handler that commits by itself: nothing is lost without a word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use oncebox::{BatchBounds, Inbox, Message, Replayed, Selector};
use oncebox_core::message::Record;
use oncebox_core::store::{Adopt, ErrorClass, Positions, Store};
use oncebox_mysql::MysqlStore;
use oncebox_testkit::{Partition, eventually};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use super::support::{claims, consumer, execute, number, position, with_database, with_store};

const TABLES: &str = "CREATE TABLE effect (id VARCHAR(50) PRIMARY KEY); CREATE TABLE staging (id INT); \
     CREATE PROCEDURE tidy_up() BEGIN TRUNCATE TABLE staging; END";

/// Everything that ends a transaction, and whether it is committed then.
const ENDS: [(&str, bool); 6] = [
    ("COMMIT", true),
    ("CREATE TABLE made (id INT)", true),
    ("TRUNCATE TABLE staging", true),
    ("CALL tidy_up()", true),
    ("START TRANSACTION", true),
    ("ROLLBACK", false),
];

async fn run(tx: &mut MySqlConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(tx).await.unwrap();
}

#[tokio::test]
async fn a_handler_that_commits_is_found_out_however_the_transaction_ends() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        execute(&url, "CREATE TABLE own_inbox (message_id VARCHAR(200) PRIMARY KEY, processed_at DATETIME)")
            .await;
        let adopt = Adopt::table("own_inbox", "message_id").unwrap();
        let adopted = MysqlStore::builder(&url).adopt(adopt).connect().await.unwrap();
        for store in [&store, &adopted] {
            let owner = store.acquire(&position()).await.unwrap();
            for (end, committed) in ENDS {
                for commits in [true, false] {
                    let mut claimed = store.claim(&consumer(), &claims(&["a", "b"])).await.unwrap();
                    assert_eq!(claimed.fresh, [true, true], "{end}");
                    run(&mut claimed.txn, end).await;
                    run(&mut claimed.txn, "INSERT INTO effect VALUES ('after')").await;
                    let ended = if commits {
                        let advance = super::support::advance(&owner, 1);
                        Some(store.commit(claimed.txn, advance).await.unwrap_err())
                    } else {
                        store.undo(claimed.txn).await.err()
                    };
                    let class = ended.as_ref().map(|error| error.class);
                    let expected = match (committed, commits) {
                        (true, _) => Some(ErrorClass::Torn),
                        (false, true) => Some(ErrorClass::Failed),
                        (false, false) => None,
                    };
                    assert_eq!(class, expected, "{end}: {ended:?}");
                    assert_eq!(number(&url, "SELECT COUNT(*) FROM effect").await, 0, "{end}");
                    assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_attempt").await, 0, "{end}");
                    execute(
                        &url,
                        "DELETE FROM oncebox_inbox; DELETE FROM own_inbox; DROP TABLE IF EXISTS made",
                    )
                    .await;
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn receipts_that_somebody_else_has_written_meanwhile_are_no_proof() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        // As after a deadlock: the transaction is over, and a copy that waited for it gets its turn.
        run(&mut claimed.txn, "ROLLBACK").await;
        assert_eq!(super::support::apply(&store, &["a"]).await, [true]);
        store.undo(claimed.txn).await.unwrap();
    })
    .await;
}

/// Old code that waits for the receipt of a batch gets it when a deadlock has ended the batch. That looks as if the batch had been
/// committed.
#[tokio::test]
async fn a_receipt_that_old_code_has_written_after_a_deadlock_is_no_proof() {
    with_store(|_, url| async move {
        let articles: Vec<String> = (1..=100).map(|id| format!("({id}, 0)")).collect();
        let tables = format!(
            "CREATE TABLE own_inbox (message_id VARCHAR(200) PRIMARY KEY); CREATE TABLE stock (id INT PRIMARY KEY, n INT); \
             INSERT INTO stock VALUES {}",
            articles.join(", ")
        );
        execute(&url, &tables).await;
        let adopt = Adopt::table("own_inbox", "message_id").unwrap();
        let adopted = MysqlStore::builder(&url).adopt(adopt).connect().await.unwrap();
        for commits in [false, true] {
            let id = if commits { "a" } else { "b" };
            let mut claimed = adopted.claim(&consumer(), &claims(&[id])).await.unwrap();
            run(&mut claimed.txn, "UPDATE stock SET n = n + 1 WHERE id = 1").await;
            // Whoever has changed less loses.
            let mut old = MySqlConnection::connect(&url).await.unwrap();
            run(&mut old, "START TRANSACTION; UPDATE stock SET n = n + 1 WHERE id > 1").await;
            let applies = tokio::spawn(async move {
                run(&mut old, &format!("INSERT INTO own_inbox VALUES ('{id}')")).await;
                run(&mut old, "COMMIT").await;
            });
            // Each waits for the other, whoever comes first.
            let lost = sqlx::raw_sql("UPDATE stock SET n = n + 1 WHERE id = 2").execute(&mut *claimed.txn).await;
            assert_eq!(MysqlStore::classify(&lost.unwrap_err()), ErrorClass::Transient);
            applies.await.unwrap();
            if commits {
                let error = adopted.commit(claimed.txn, None).await.unwrap_err();
                assert_eq!(error.class, ErrorClass::Failed, "{error}");
            } else {
                adopted.undo(claimed.txn).await.unwrap();
            }
            let copy = adopted.claim(&consumer(), &claims(&[id])).await.unwrap();
            assert_eq!(copy.fresh, [false]);
            adopted.rollback(copy.txn).await;
        }
    })
    .await;
}

fn record(offset: i64) -> Record {
    let mut record = Record::at("stock.updates", 0, offset);
    record.headers.push("id", Some(Bytes::from(format!("m{offset}"))));
    record
}

/// How the handler of `m3` goes on after it has committed, and who notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It succeeds, and so do the others: the commit of the batch fails.
    Succeeds,
    /// The next one fails.
    Fails,
    /// The next one panics.
    Panics,
}

async fn apply_each(tx: &mut MySqlConnection, message: &Message, then: Then) -> oncebox::Result {
    sqlx::query("INSERT INTO effect VALUES (?)").bind(message.id().as_str()).execute(&mut *tx).await?;
    match message.id().as_str() {
        "m3" => {
            sqlx::raw_sql("CALL tidy_up()").execute(&mut *tx).await?;
        }
        "m4" if then == Then::Fails => return Err("no such article".into()),
        "m4" => assert!(then != Then::Panics, "boom"),
        _ => {}
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_procedure_that_truncates_stops_the_partition_and_every_message_is_kept() {
    for then in [Then::Succeeds, Then::Fails, Then::Panics] {
        with_database(|url| async move {
            let store = MysqlStore::connect(&url).await.unwrap();
            store.migrate().await.unwrap();
            execute(&url, TABLES).await;
            let [began, all_there, mended] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
            let (begins, waits, is_mended) =
                (Arc::clone(&began), Arc::clone(&all_there), Arc::clone(&mended));
            let worker = Inbox::new("stock", store.clone())
                .unwrap()
                .id(Selector::Header("id".into()))
                .batch_bounds(BatchBounds { messages: 100, bytes: 1 << 20 })
                .each(async move |tx: &mut MySqlConnection, message: &Message| {
                    // The first one is a batch of its own, so that all others are one.
                    begins.store(true, Ordering::SeqCst);
                    while !waits.load(Ordering::SeqCst) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    if is_mended.load(Ordering::SeqCst) {
                        let insert = sqlx::query("INSERT INTO effect VALUES (?)");
                        insert.bind(message.id().as_str()).execute(&mut *tx).await?;
                        return Ok(());
                    }
                    apply_each(tx, message, then).await
                });
            let partition = Partition::open(&worker.intake(), "stock.updates", None).await;
            partition.push([record(0)]);
            eventually("the first batch runs", || began.load(Ordering::SeqCst)).await;
            partition.push((1..101).map(record));
            all_there.store(true, Ordering::SeqCst);
            let stream = &partition.stream;
            eventually("it stands still", || stream.stopped().is_some()).await;
            let reason = stream.stopped().unwrap().to_owned();
            for part in ["commits by itself", "m1, m2, m3", "80 more", "oncebox dead list"] {
                assert!(reason.contains(part), "{then:?}: {part} in {reason}");
            }
            // Nothing has moved, nothing is lost: what is applied, and what may not be.
            assert_eq!(stream.settled(), Some(1), "{then:?}");
            let position = "SELECT next_offset FROM oncebox_position";
            assert_eq!(number(&url, position).await, 1, "{then:?}");
            assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_dead").await, 100, "{then:?}");
            let effects = number(&url, "SELECT COUNT(*) FROM effect").await;
            assert_eq!(effects, 4, "{then:?}: m0 to m3");
            partition.close().await;

            // Who starts again finds copies, and the letters say which were not applied.
            mended.store(true, Ordering::SeqCst);
            let partition = Partition::open(&worker.intake(), "stock.updates", None).await;
            partition.push((1..101).map(record));
            partition.settled(101).await;
            assert_eq!(number(&url, "SELECT COUNT(*) FROM effect").await, 4, "{then:?}");
            let letter = number(&url, "SELECT number FROM oncebox_dead WHERE message_id = 'm50'").await;
            assert!(matches!(worker.replay(letter).await.unwrap(), Replayed::Applied), "{then:?}");
            assert_eq!(number(&url, "SELECT COUNT(*) FROM effect").await, 5, "{then:?}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_commits_by_itself_says_so() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        let failing = Arc::new(AtomicBool::new(true));
        let worker = Inbox::new("stock", store.clone()).unwrap().id(Selector::Header("id".into())).each(
            async move |tx: &mut MySqlConnection, _: &Message| {
                if failing.swap(false, Ordering::SeqCst) {
                    return Err(oncebox::reject("not now"));
                }
                sqlx::raw_sql("CALL tidy_up()").execute(&mut *tx).await?;
                Err("too late".into())
            },
        );
        let partition = Partition::open(&worker.intake(), "stock.updates", None).await;
        partition.push([record(0)]);
        partition.settled(1).await;
        let letter = number(&url, "SELECT number FROM oncebox_dead").await;
        let error = worker.replay(letter).await.unwrap_err();
        assert_eq!(error.code(), "torn", "{error}");
    })
    .await;
}
