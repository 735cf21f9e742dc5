//! What real errors of the server mean, in any language.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use oncebox_core::message::Record;
use oncebox_core::names::Tenant;
use oncebox_core::store::{DeadLetter, DeadLetters, ErrorClass, Store};
use oncebox_mysql::{MysqlStore, MysqlTxn};
use sqlx::{AssertSqlSafe, Row};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::{apply, claims, consumer, execute, number, with_database, with_store};

const TABLES: &str =
    "CREATE TABLE effects (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO effects VALUES (1, 0), (2, 0)";

async fn run(txn: &mut MysqlTxn, sql: &str) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **txn).await.map(|_| ())
}

async fn store(url: &str) -> MysqlStore {
    let store = MysqlStore::builder(url).lock_timeout(Duration::from_secs(1)).connect().await.unwrap();
    store.migrate().await.unwrap();
    execute(url, TABLES).await;
    store
}

async fn begun(store: &MysqlStore, id: &'static str, language: &str) -> MysqlTxn {
    let mut claimed = store.claim(&consumer(), &claims(&[id])).await.unwrap();
    run(&mut claimed.txn, &format!("SET SESSION lc_messages = '{language}'")).await.unwrap();
    claimed.txn
}

/// Each waits for the other. Returns the one that lost, with its error.
async fn deadlock(mut one: MysqlTxn, mut two: MysqlTxn) -> (MysqlTxn, sqlx::Error, MysqlTxn) {
    run(&mut one, "UPDATE effects SET n = n + 1 WHERE id = 1").await.unwrap();
    run(&mut two, "UPDATE effects SET n = n + 1 WHERE id = 2").await.unwrap();
    let (first, second) = tokio::join!(
        run(&mut one, "UPDATE effects SET n = n + 1 WHERE id = 2"),
        run(&mut two, "UPDATE effects SET n = n + 1 WHERE id = 1")
    );
    match (first, second) {
        (Err(error), Ok(())) => (one, error, two),
        (Ok(()), Err(error)) => (two, error, one),
        other => panic!("one of both must lose: {other:?}"),
    }
}

#[tokio::test]
async fn the_language_of_the_server_makes_no_difference() {
    for (language, not_there) in [("en_US", "exist"), ("de_DE", "existiert nicht")] {
        with_database(|url| async move {
            let store = store(&url).await;
            let class = |error: &sqlx::Error| MysqlStore::classify(error);
            let mut txn = begun(&store, "a", language).await;
            let error = run(&mut txn, "SELECT * FROM nothing").await.unwrap_err();
            assert!(error.to_string().contains(not_there), "the language is not {language}: {error}");
            assert_eq!(class(&error), ErrorClass::Environment, "{error}");
            let error = run(&mut txn, "INSERT INTO effects VALUES (1, 0)").await.unwrap_err();
            assert_eq!(class(&error), ErrorClass::Failed, "{error}");
            let error = run(&mut txn, "INSERT INTO effects VALUES (3, NULL)").await.unwrap_err();
            assert_eq!(class(&error), ErrorClass::Failed, "{error}");

            run(&mut txn, "UPDATE effects SET n = 1 WHERE id = 1").await.unwrap();
            let mut other = begun(&store, "b", language).await;
            let error = run(&mut other, "UPDATE effects SET n = 1 WHERE id = 1").await.unwrap_err();
            assert_eq!(class(&error), ErrorClass::Transient, "{error}");
            store.rollback(txn).await;
            store.rollback(other).await;

            let (one, two) = (begun(&store, "c", language).await, begun(&store, "d", language).await);
            let (lost, error, won) = deadlock(one, two).await;
            assert_eq!(class(&error), ErrorClass::Transient, "{error}");
            store.rollback(lost).await;
            store.rollback(won).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_deadlock_ends_the_transaction_even_if_the_handler_goes_on() {
    with_database(|url| async move {
        let store = store(&url).await;
        let (one, two) = (begun(&store, "a", "en_US").await, begun(&store, "b", "en_US").await);
        let (mut lost, error, won) = deadlock(one, two).await;
        assert_eq!(MysqlStore::classify(&error), ErrorClass::Transient, "{error}");
        run(&mut lost, "INSERT INTO effects VALUES (3, 3)").await.unwrap();
        let error = store.commit(lost, None).await.unwrap_err();
        assert!(error.to_string().contains("ended the transaction"), "{error}");
        store.commit(won, None).await.unwrap();
        assert_eq!(number(&url, "SELECT COUNT(*) FROM effects WHERE n = 1").await, 2);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM effects WHERE id = 3").await, 0);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_inbox").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_lock_wait_that_takes_too_long_undoes_the_whole_claim() {
    with_database(|url| async move {
        let store = store(&url).await;
        let held = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let error = store.claim(&consumer(), &claims(&["a", "b", "c"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Transient, "{error}");
        // Nobody holds the receipts that were written before the wait.
        assert_eq!(apply(&store, &["b", "c"]).await, [true, true]);
        store.rollback(held.txn).await;
        assert_eq!(apply(&store, &["a", "b", "c"]).await, [true, false, false]);
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_was_idle_for_too_long_is_nobodys_fault() {
    with_database(|url| async move {
        let second = Duration::from_secs(1);
        let store = MysqlStore::builder(&url).idle_in_transaction_timeout(second).connect().await.unwrap();
        store.migrate().await.unwrap();
        execute(&url, TABLES).await;
        for commits in [true, false] {
            let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
            assert_eq!(claimed.fresh, [true]);
            let id: u64 =
                sqlx::query("SELECT CONNECTION_ID()").fetch_one(&mut *claimed.txn).await.unwrap().get(0);
            let there = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
            while number(&url, &there).await > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            if commits {
                let error = store.commit(claimed.txn, None).await.unwrap_err();
                assert_eq!(error.class, ErrorClass::Away, "{error}");
            } else {
                let error = run(&mut claimed.txn, "UPDATE effects SET n = 1").await.unwrap_err();
                assert_eq!(MysqlStore::classify(&error), ErrorClass::Transient, "{error}");
                store.undo(claimed.txn).await.unwrap();
            }
        }
        assert_eq!(apply(&store, &["a"]).await, [true]);
    })
    .await;
}

/// A proxy that passes everything on until it is told to keep the answers.
async fn silenced(url: &str) -> (String, Arc<AtomicBool>) {
    let (_, rest) = url.split_once('@').unwrap();
    let server = rest.split('/').next().unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap().to_string();
    let (through, silent) = (url.replace(&server, &here), Arc::new(AtomicBool::new(false)));
    let keeps = Arc::clone(&silent);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            let keeps = Arc::clone(&keeps);
            // Whoever hangs up ends both ways.
            let up = async move { tokio::io::copy(&mut from_client, &mut to_server).await.map(|_| ()) };
            let down = async move {
                let mut buffer = vec![0; 64 * 1024];
                loop {
                    let read = from_server.read(&mut buffer).await?;
                    if read == 0 {
                        return Ok(());
                    }
                    if !keeps.load(Ordering::SeqCst) {
                        to_client.write_all(&buffer[..read]).await?;
                    }
                }
            };
            tokio::spawn(async move {
                let ended: std::io::Result<()> =
                    tokio::select! { ended = up => ended, ended = down => ended };
                drop(ended);
            });
        }
    });
    (format!("{through}&ssl-mode=DISABLED"), silent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_without_an_answer_is_not_waited_for() {
    with_store(|_, url| async move {
        let (through, silent) = silenced(&url).await;
        let store = MysqlStore::builder(&through).max_connections(2).connect().await.unwrap();
        for after_handler in [true, false] {
            let claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
            assert_eq!(claimed.fresh, [true]);
            silent.store(true, Ordering::SeqCst);
            let began = Instant::now();
            if after_handler {
                store.undo(claimed.txn).await.unwrap();
            } else {
                store.rollback(claimed.txn).await;
            }
            // The store's patience for other statements is a minute and a half.
            assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
            silent.store(false, Ordering::SeqCst);
        }
        assert_eq!(apply(&store, &["a"]).await, [true]);
    })
    .await;
}

#[tokio::test]
async fn a_packet_that_is_too_large_is_no_lost_server() {
    with_store(|store, url| async move {
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let most: u64 =
            sqlx::query("SELECT @@max_allowed_packet").fetch_one(&mut *claimed.txn).await.unwrap().get(0);
        let too_large = vec![0; usize::try_from(most).unwrap() + 1];
        let error = sqlx::query("SELECT LENGTH(?)")
            .bind(too_large.as_slice())
            .fetch_one(&mut *claimed.txn)
            .await
            .unwrap_err();
        assert_eq!(MysqlStore::classify(&error), ErrorClass::Transient, "{error}");
        assert!(store.commit(claimed.txn, None).await.is_err());

        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        assert_eq!(claimed.fresh, [true]);
        let letter = DeadLetter {
            tenant: Tenant::none(),
            message_id: Some("a".to_owned()),
            record: Record { payload: Some(too_large.into()), ..Record::at("orders", 0, 0) },
            error: "too large".to_owned(),
            attempts: 1,
        };
        let error = store.park(&mut claimed.txn, &consumer(), &[letter]).await.unwrap_err();
        // The connection may break before the server's word for it arrives.
        assert!(matches!(error.class, ErrorClass::Environment | ErrorClass::Transient), "{error}");
        drop(claimed);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_inbox").await, 0);
    })
    .await;
}
