//! What is found before the first message comes.

use oncebox_core::store::ErrorClass;
use oncebox_mysql::SqlHandler;
use oncebox_sql::{Handler, PayloadKind, SqlHandlerError};

use super::sql_support::{TABLES, batch, each, with_both_users};
use super::support::{execute, number, with_store};

#[tokio::test(flavor = "multi_thread")]
async fn bad_statements_are_all_found_at_the_start() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        let handler = each(&[
            ("UPDATE stok SET on_hand = 1 WHERE sku = :id", None),
            ("UPDATE stock SET on_hand = 1 WHERE sku = :id", None),
            ("INSERT INTO ledger (nope) VALUES (:id)", None),
            ("UPDAT stock", None),
            ("TRUNCATE stock", None),
            ("INSERT INTO ledger (sku) VALUES ('it\\'s ' || 'it\\'s')", None),
        ]);
        let error = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap_err();
        let SqlHandlerError::Statements(bad) = &error else { panic!("{error}") };
        let numbers: Vec<_> = bad.iter().map(|bad| bad.number).collect();
        assert_eq!(numbers, [1, 3, 4, 5, 6], "{error}");
        assert!(bad[0].reason.contains("stok"), "{error}");
        assert!(bad[3].reason.contains("TRUNCATE is refused"), "{error}");
        // MySQL has no RETURNING, and MariaDB does not count its rows.
        let returning = each(&[("DELETE FROM ledger WHERE sku = :id RETURNING sku", Some("1"))]);
        assert!(SqlHandler::prepare(&store, &returning, PayloadKind::Json).await.is_err());
        let wrong = batch(&["INSERT INTO ledger (message_id) SELECT idd FROM messages"]);
        let error = SqlHandler::prepare(&store, &wrong, PayloadKind::Json).await.unwrap_err();
        assert!(error.to_string().contains("statement 1: Unknown column 'idd'"), "{error}");
        let wrong = batch(&["INSERT INTO messages (sku) VALUES (1)"]);
        let error = SqlHandler::prepare(&store, &wrong, PayloadKind::Json).await.unwrap_err();
        assert!(error.to_string().contains("select from `messages`"), "{error}");
        let routines = "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE() \
             AND routine_name LIKE 'oncebox\\_each%'";
        assert_eq!(number(&url, routines).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_when_a_handler_is_prepared() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        let handler =
            each(&[("UPDATE stock SET on_hand = 0", None), ("INSERT INTO ledger (sku) VALUES ('x')", None)]);
        SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        assert_eq!(number(&url, "SELECT COUNT(*) FROM ledger").await, 0);
        assert_eq!(number(&url, "SELECT CAST(SUM(on_hand) AS SIGNED) FROM stock").await, 200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_procedure_that_is_not_there_is_missed_at_the_start() {
    with_both_users(|store, url| async move {
        execute(&url, "CREATE PROCEDURE there(IN a TEXT) DO 0").await;
        let handler = each(&[("CALL There(:id)", None), ("call `not_there` (:id)", None)]);
        let error = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap_err();
        let SqlHandlerError::Store(error) = &error else { panic!("{error}") };
        assert_eq!(error.class, ErrorClass::Environment, "{error}");
        assert!(error.to_string().contains("statement 2: "), "{error}");
        assert!(!error.to_string().contains("statement 1: "), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_lacks_may_come() {
    with_store(|store, url| async move {
        let handler = each(&[("INSERT INTO later (id) VALUES (:id)", None)]);
        let error = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap_err();
        let SqlHandlerError::Store(error) = &error else { panic!("{error}") };
        assert_eq!(error.class, ErrorClass::Environment, "{error}");
        execute(&url, "CREATE TABLE later (id VARCHAR(50))").await;
        SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_told_with_what_to_grant() {
    with_both_users(|store, _| async move {
        let handler = Handler::each(["UPDATE mysql.db SET user = user WHERE user = :id"]).unwrap();
        let Err(error) = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await else { return };
        let SqlHandlerError::Store(error) = &error else { panic!("{error}") };
        assert_eq!(error.class, ErrorClass::Environment);
        assert!(error.to_string().contains("GRANT UPDATE, SELECT ON"), "{error}");
    })
    .await;
}
