//! `batch`: set-based statements over the relation `messages`.

use oncebox_core::store::{ErrorClass, Store};
use oncebox_mysql::MysqlStore;

use super::sql_support::{TABLES, batch, message, prepare, record, run, sale, with_both_users};
use super::support::{execute, number};

#[tokio::test(flavor = "multi_thread")]
async fn batch_statements_see_the_relation_messages() {
    with_both_users(|store, url| async move {
        execute(&url, TABLES).await;
        let handler = batch(&[
            "UPDATE stock JOIN (SELECT payload->>'$.sku' AS sku, SUM(payload->>'$.qty') AS qty FROM messages GROUP BY 1) AS d \
             ON d.sku = stock.sku SET stock.on_hand = stock.on_hand - d.qty",
            "INSERT INTO ledger (message_id, sku, qty, extra) \
             WITH mine AS (SELECT id, payload FROM messages) \
             SELECT id, payload->>'$.sku', JSON_VALUE(payload, '$.qty'), payload FROM mine -- all",
            "INSERT INTO ledger (sku, qty) SELECT 'twice', COUNT(*) FROM messages AS a JOIN messages b ON a.id = b.id \
             WHERE a.id IN (SELECT id FROM messages)",
        ]);
        let handler = prepare(&store, &handler).await;
        run(&store, &handler, &[sale(1, "a", 2), sale(2, "b", 3), sale(3, "a", 5)]).await.unwrap();
        assert_eq!(number(&url, "SELECT on_hand FROM stock WHERE sku = 'a'").await, 93);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM ledger WHERE JSON_VALUE(extra, '$.sku') = sku").await, 3);
        assert_eq!(number(&url, "SELECT qty FROM ledger WHERE sku = 'twice'").await, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_called_messages_is_left_alone() {
    with_both_users(|store, url| async move {
        execute(&url, "CREATE TABLE messages (id VARCHAR(50)); INSERT INTO messages VALUES ('mine')").await;
        let handler = prepare(&store, &batch(&["INSERT INTO messages SELECT id FROM messages"])).await;
        run(&store, &handler, &[sale(1, "a", 2)]).await.unwrap();
        assert_eq!(number(&url, "SELECT COUNT(*) FROM messages").await, 2);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM messages WHERE id = 'm-1'").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_whole_rows_gets_them() {
    with_both_users(|store, url| async move {
        execute(
            &url,
            "CREATE TABLE got (id TEXT, `key` TEXT, payload LONGTEXT, headers TEXT, topic TEXT, `partition` INT, \
             `offset` BIGINT, at DATETIME(3), tenant TEXT)",
        )
        .await;
        for sql in [
            "INSERT INTO got SELECT * FROM messages",
            "INSERT INTO got SELECT m.* FROM messages m",
            "INSERT INTO got SELECT x.* FROM (SELECT * FROM messages) x",
        ] {
            execute(&url, "DELETE FROM got").await;
            let handler = prepare(&store, &batch(&[sql])).await;
            let mut whole = record(7, "[]");
            whole.key = Some("k".into());
            whole.timestamp_ms = Some(0);
            run(&store, &handler, &[message(whole)]).await.unwrap();
            let whole = "SELECT COUNT(*) FROM got WHERE id = 'm-7' AND `key` = 'k' AND payload = '[]' AND headers = '{}' \
                 AND topic = 'stock.updates' AND `partition` = 3 AND `offset` = 7 AND at = '1970-01-01' AND tenant = ''";
            assert_eq!(number(&url, whole).await, 1, "{sql}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_a_batch_names_its_statement() {
    with_both_users(|store, url| async move {
        execute(&url, TABLES).await;
        let handler = batch(&[
            "SELECT COUNT(*) FROM messages",
            "INSERT INTO ledger (message_id) SELECT id FROM messages",
        ]);
        let handler = prepare(&store, &handler).await;
        run(&store, &handler, &[sale(1, "a", 1)]).await.unwrap();
        let failure = run(&store, &handler, &[sale(2, "a", 1), sale(1, "a", 1)]).await.unwrap_err();
        let text = failure.error.to_string();
        assert!(text.starts_with("statement 2: Duplicate entry 'm-1'"), "{text}");
        assert_eq!(failure.at, None);
        assert_eq!(MysqlStore::classify(&*failure.error), ErrorClass::Failed);
        let failure = run(&store, &handler, &[sale(1, "a", 1)]).await.unwrap_err();
        assert_eq!(failure.at, Some(0));
    })
    .await;
}
