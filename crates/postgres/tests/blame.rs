//! Whose fault an error is, as a real server tells it.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use std::error::Error;

use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{ErrorClass, Positions, Store};
use oncebox_postgres::{PgStore, SqlHandler};
use oncebox_sql::{Handler, PayloadKind, SqlHandlerError};
use support::{advance, claims, consumer, execute, number, position, with_database, with_store};

/// The class of a statement's error in a handler.
async fn class_of(store: &PgStore, sql: &'static str) -> ErrorClass {
    let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
    let error = sqlx::raw_sql(sql).execute(&mut *claimed.txn).await.unwrap_err();
    store.rollback(claimed.txn).await;
    PgStore::classify(&error)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_told_from_the_message() {
    with_store(|store, _| async move {
        execute(
            &store,
            "CREATE TABLE stock (sku text PRIMARY KEY, n int CHECK (n >= 0)); \
             CREATE TABLE guarded (tenant text); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY; \
             CREATE POLICY own ON guarded WITH CHECK (tenant = 'acme'); GRANT INSERT ON guarded TO pg_monitor; \
             CREATE FUNCTION refuse() RETURNS void LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'not yours' USING ERRCODE = 'insufficient_privilege'; END $$",
        )
        .await;
        for sql in [
            "INSERT INTO stok VALUES ('a')",
            "INSERT INTO stock (skuu) VALUES ('a')",
            "SELECT no_such_function(1)",
            "SELECT * FROM nowhere.stock",
            "SELECT 'a'::no_such_type",
            "UPDATE stock SET n = sku",
            "SELECT sku - 1 FROM stock",
            "INSERT INTO stock VALUES ('a') ON CONFLICT (n) DO NOTHING",
            "SET LOCAL ROLE pg_monitor; INSERT INTO stock VALUES ('a')",
            "SET LOCAL ROLE pg_monitor; SELECT n FROM stock",
        ] {
            assert_eq!(class_of(&store, sql).await, ErrorClass::Environment, "{sql}");
        }
        for sql in [
            "INSERT INTO stock VALUES ('a', -1)",
            "INSERT INTO stock VALUES ('a', 1), ('a', 1)",
            "SELECT 'x'::int",
            "SELECT 1 / 0",
            "SELECT to_tsquery('two words')",
            "SET LOCAL ROLE pg_monitor; INSERT INTO guarded VALUES ('zeta')",
            "SELECT refuse()",
        ] {
            assert_eq!(class_of(&store, sql).await, ErrorClass::Failed, "{sql}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_values_are_tried_again_with_fewer_messages() {
    with_store(|store, _| async move {
        let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
        let mut query = sqlx::query("SELECT 1");
        for value in 0..70_000 {
            query = query.bind(value);
        }
        let error = query.execute(&mut *claimed.txn).await.unwrap_err();
        assert_eq!(PgStore::classify(&error), ErrorClass::Transient, "{error}");
        store.rollback(claimed.txn).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_swallows_an_error_fails_and_is_told_so() {
    with_store(|store, _| async move {
        let owner = store.acquire(&position()).await.unwrap();
        for emits in [true, false] {
            let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
            sqlx::query("SELECT 1 / 0").execute(&mut *claimed.txn).await.unwrap_err();
            let (class, text) = if emits {
                let error = claimed.txn.emit(Event::to("t")).await.unwrap_err();
                (PgStore::classify(&error), error.to_string())
            } else {
                let error = store.commit(claimed.txn, advance(&owner, 1)).await.unwrap_err();
                (error.class, error.to_string())
            };
            assert_eq!(class, ErrorClass::Failed, "{text}");
            assert!(text.contains("swallowed an error"), "{text}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_of_the_application_on_the_outbox_blames_the_message() {
    with_store(|store, _| async move {
        execute(
            &store,
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$; \
             CREATE TRIGGER no BEFORE INSERT ON oncebox_outbox FOR EACH ROW EXECUTE FUNCTION no()",
        )
        .await;
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let error = claimed.txn.emit(Event::to("t")).await.unwrap_err();
        assert_eq!(PgStore::classify(&error), ErrorClass::Failed, "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_tables_are_the_environment_too() {
    with_store(|store, _| async move {
        execute(&store, "ALTER TABLE oncebox_inbox RENAME TO elsewhere").await;
        let error = store.claim(&consumer(), &claims(&["a"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Environment, "{error}");
        execute(&store, "ALTER TABLE elsewhere RENAME TO oncebox_inbox").await;
        store.claim(&consumer(), &claims(&["a"])).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_is_away_and_one_that_refuses_is_not() {
    with_database(|url| async move {
        let nowhere = PgStore::connect("postgres://postgres@127.0.0.1:1/x").await.unwrap_err();
        assert_eq!(nowhere.code(), "away", "{nowhere}");
        let missing = format!("{}_missing?", url.split('?').next().unwrap());
        let refused = PgStore::connect(&missing).await.unwrap_err();
        assert_eq!(refused.code(), "environment", "{refused}");
    })
    .await;
}

fn each(statements: &[&str]) -> Handler {
    Handler::each(statements.iter().copied()).unwrap()
}

/// The class and the text of what keeps a handler from being prepared.
async fn refusal(store: &PgStore, statements: &[&str]) -> (Option<ErrorClass>, String) {
    let error = SqlHandler::prepare(store, &each(statements), PayloadKind::Json).await.unwrap_err();
    let class = match &error {
        SqlHandlerError::Store(store) => {
            assert!(store.source().unwrap().is::<SqlHandlerError>(), "{error}");
            Some(store.class)
        }
        _ => None,
    };
    (class, error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_and_tables_are_found_at_the_start_and_can_be_mended() {
    with_store(|store, url| async move {
        execute(
            &store,
            "CREATE TABLE stock (sku text, n int); CREATE TABLE ledger (id text); GRANT SELECT ON stock TO pg_monitor; \
             CREATE FUNCTION note(text) RETURNS void LANGUAGE sql AS ''; REVOKE EXECUTE ON FUNCTION note FROM PUBLIC",
        )
        .await;
        let lean = PgStore::connect(&format!("{url}&options[role]=pg_monitor")).await.unwrap();
        let statements = [
            "SELECT n FROM stock WHERE sku = :key",
            "UPDATE stock SET n = (:payload->>'n')::int WHERE sku = :key",
            "INSERT INTO ledger VALUES (:id)",
            "SELECT note(:id)",
        ];
        let (class, text) = refusal(&lean, &statements).await;
        assert_eq!(class, Some(ErrorClass::Environment), "{text}");
        assert!(!text.contains("statement 1: "), "{text}");
        let update = "statement 2: permission denied for table stock (42501); GRANT UPDATE, SELECT ON … TO \"pg_monitor\"";
        assert!(text.contains(update), "{text}");
        assert!(text.contains("statement 3: permission denied for table ledger"), "{text}");
        assert!(text.contains("statement 4: permission denied for function note"), "{text}");

        let (class, text) = refusal(&store, &["INSERT INTO latter VALUES (:id)"]).await;
        assert_eq!(class, Some(ErrorClass::Environment), "{text}");
        let (class, text) = refusal(&store, &["INSERT INTO latter VALUES (:id)", "INSERT ledger"]).await;
        assert!(class.is_none() && text.contains("statement 1: ") && text.contains("statement 2: "), "{text}");

        execute(
            &store,
            "GRANT UPDATE ON stock TO pg_monitor; GRANT INSERT ON ledger TO pg_monitor; \
             GRANT EXECUTE ON FUNCTION note TO pg_monitor",
        )
        .await;
        SqlHandler::prepare(&lean, &each(&statements), PayloadKind::Json).await.unwrap();
        // What cannot be explained is still allowed, and nothing has run.
        let odd = ["LOCK TABLE ledger", "SET LOCAL work_mem = '8MB'", "INSERT INTO ledger VALUES ('ran')"];
        SqlHandler::prepare(&store, &each(&odd), PayloadKind::Json).await.unwrap();
        assert_eq!(number(&store, "SELECT count(*) FROM ledger").await, 0);
    })
    .await;
}
