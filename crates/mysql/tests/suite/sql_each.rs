//! `each`: statements for every message.

use bytes::Bytes;
use oncebox_core::message::{Headers, Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use oncebox_core::store::{ErrorClass, Store};
use oncebox_mysql::{MysqlStore, SqlHandler};
use oncebox_sql::PayloadKind;

use super::sql_support::{
    TABLES, batch, each, is_mariadb, message, prepare, record, rejection, run, sale, stock_each,
    with_both_users,
};
use super::support::{consumer, execute, number, with_store};

#[tokio::test(flavor = "multi_thread")]
async fn each_applies_every_message() {
    with_both_users(|store, url| async move {
        execute(&url, TABLES).await;
        let handler = prepare(&store, &stock_each()).await;
        run(&store, &handler, &[sale(1, "a", 2), sale(2, "b", 3), sale(3, "a", 5)]).await.unwrap();
        assert_eq!(number(&url, "SELECT on_hand FROM stock WHERE sku = 'a'").await, 93);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM ledger").await, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_keeps_the_order_of_the_messages() {
    with_both_users(|store, url| async move {
        execute(&url, "CREATE TABLE seen (at BIGINT AUTO_INCREMENT PRIMARY KEY, place BIGINT)").await;
        let handler = prepare(&store, &each(&[("INSERT INTO seen (place) VALUES (:offset)", Some("1"))])).await;
        let mut messages: Vec<_> = (0..1_000).map(|at| message(Record::at("t", 0, at))).collect();
        fastrand::shuffle(&mut messages);
        run(&store, &handler, &messages).await.unwrap();
        let places: String = messages.iter().map(|m| format!("{},", m.record().offset)).collect();
        let same = format!(
            "SET SESSION group_concat_max_len = 100000; SELECT CAST(GROUP_CONCAT(place ORDER BY at) = '{}' AS SIGNED) FROM seen",
            places.trim_end_matches(',')
        );
        assert_eq!(raw_number(&url, &same).await, 1);
    })
    .await;
}

async fn raw_number(url: &str, sql: &str) -> i64 {
    use sqlx::{Connection, Row};
    let mut conn = sqlx::MySqlConnection::connect(url).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut conn).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_parameter_arrives_with_its_type() {
    with_both_users(|store, url| async move {
        execute(
            &url,
            "CREATE TABLE got (id TEXT, `key` TEXT, payload LONGTEXT, headers TEXT, topic TEXT, `partition` INT, \
             `offset` BIGINT, at DATETIME(3), tenant TEXT) DEFAULT CHARACTER SET utf8mb4",
        )
        .await;
        let sql = "INSERT INTO got VALUES (:id, :key, :payload, :headers, :topic, :partition, :offset, :timestamp, :tenant)";
        let from_batch = "INSERT INTO got SELECT id, `key`, payload, headers, topic, m.`partition`, m.offset, m.timestamp, tenant \
             FROM messages AS m";
        for handler in [each(&[(sql, Some("1"))]), batch(&[from_batch])] {
            execute(&url, "DELETE FROM got").await;
            let handler = prepare(&store, &handler).await;
            let mut full = record(9, r#"{"ü": [1.50, null]}"#);
            full.key = Some("k'1\\\"\u{0}\n\u{1f600}".into());
            full.timestamp_ms = Some(1_700_000_000_123);
            full.headers = Headers::from_iter([("h", Some(Bytes::from("old"))), ("h", Some(Bytes::from("new")))]);
            full.headers.push("raw", Some(Bytes::from_static(&[0xff])));
            let full = Message::new(MessageId::new("id-1").unwrap(), Tenant::new("acme").unwrap(), full);
            let mut old = message(Record::at("t", 0, 1));
            old = Message::new(old.id().clone(), Tenant::none(), Record { timestamp_ms: Some(-1), ..old.record().clone() });
            run(&store, &handler, &[full, message(Record::at("t", 0, 2)), old]).await.unwrap();
            let good = r#"SELECT COUNT(*) FROM got WHERE id = 'id-1' AND HEX(`key`) = '6B27315C22000AF09F9880'
                AND HEX(payload) = HEX('{"ü": [1.50, null]}') AND headers = '{"h":"new","raw":{"base64":"/w=="}}'
                AND topic = 'stock.updates' AND `partition` = 3 AND `offset` = 9 AND at = '2023-11-14 22:13:20.123'
                AND tenant = 'acme'"#;
            assert_eq!(number(&url, good).await, 1);
            let bare = "SELECT COUNT(*) FROM got WHERE id = 'm-2' AND `key` IS NULL AND payload IS NULL AND headers = '{}' \
                 AND at IS NULL AND tenant = ''";
            assert_eq!(number(&url, bare).await, 1);
            assert_eq!(number(&url, "SELECT COUNT(*) FROM got WHERE at = '1969-12-31 23:59:59.999'").await, 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_and_bytes_are_what_they_say() {
    with_both_users(|store, url| async move {
        execute(&url, "CREATE TABLE got (t TEXT CHARACTER SET utf8mb4, b BLOB)").await;
        let text = each(&[("INSERT INTO got (t) VALUES (:payload || '!')", None)]);
        let text = SqlHandler::prepare(&store, &text, PayloadKind::Text).await.unwrap();
        run(&store, &text, &[message(record(1, "grüße"))]).await.unwrap();
        let raw = |offset: i64, bytes: &'static [u8]| {
            let mut raw = record(offset, "");
            raw.payload = Some(Bytes::from_static(bytes));
            message(raw)
        };
        for handler in [
            each(&[("INSERT INTO got (b) VALUES (:payload)", Some("1"))]),
            batch(&["INSERT INTO got (b) SELECT payload FROM messages ORDER BY payload, id"]),
        ] {
            let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Bytes).await.unwrap();
            let messages = [raw(2, &[0, 0xff, b'\'', b'\\']), raw(3, &[]), message(Record::at("t", 0, 4))];
            run(&store, &handler, &messages).await.unwrap();
        }
        assert_eq!(number(&url, "SELECT COUNT(*) FROM got WHERE HEX(t) = HEX('grüße!')").await, 1);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM got WHERE HEX(b) = '00FF275C'").await, 2);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM got WHERE b = ''").await, 2);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM got WHERE b IS NULL AND t IS NULL").await, 2);
        let failure = run(&store, &text, &[message(record(1, "ok")), raw(2, &[0xff])]).await.unwrap_err();
        assert_eq!(failure.at, Some(1));
        assert!(rejection(&failure).contains("not UTF-8"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_that_the_server_cannot_read_as_json_are_rejected_unless_they_are_text() {
    with_both_users(|store, url| async move {
        execute(&url, TABLES).await;
        let odd = [
            format!("{}{}", "[".repeat(101), "]".repeat(101)),
            r#"{"a": "\ud800"}"#.to_owned(),
            r#"{"a": 1e400}"#.to_owned(),
            r#"{"a": "\u0000", "b": 0.1000000000000000055511151231257827}"#.to_owned(),
            r#""it's \\ \" 'x'""#.to_owned(),
        ];
        let readable = 3;
        let messages: Vec<_> =
            odd.iter().zip(1..).map(|(payload, offset)| message(record(offset, payload))).collect();
        for handler in [
            each(&[("INSERT INTO ledger (message_id, extra) VALUES (:id, :payload)", Some("1"))]),
            batch(&["INSERT INTO ledger (message_id, extra) SELECT id, payload FROM messages"]),
        ] {
            execute(&url, "DELETE FROM ledger").await;
            let json = prepare(&store, &handler).await;
            run(&store, &json, &messages[readable..]).await.unwrap();
            for at in 0..readable {
                let failure = run(&store, &json, &messages[at..]).await.unwrap_err();
                assert_eq!(failure.at, Some(0));
                assert!(rejection(&failure).contains("the payload"));
            }
            execute(&url, "DELETE FROM ledger").await;
            let text = SqlHandler::prepare(&store, &handler, PayloadKind::Text).await.unwrap();
            run(&store, &text, &messages).await.unwrap();
            for (payload, offset) in odd.iter().zip(1..) {
                let hex: String = payload.bytes().map(|byte| format!("{byte:02X}")).collect();
                let found = format!(
                    "SELECT COUNT(*) FROM ledger WHERE message_id = 'm-{offset}' AND HEX(extra) = '{hex}'"
                );
                assert_eq!(number(&url, &found).await, 1, "{payload:.40}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_batches_and_large_payloads_arrive() {
    with_both_users(|store, url| async move {
        execute(&url, TABLES).await;
        let large = format!("\"{}\"", "ü\\\\x".repeat(100_000));
        let messages: Vec<_> = (0..6).map(|offset| message(record(offset, &large))).collect();
        for handler in [
            each(&[("INSERT INTO ledger (message_id, qty) VALUES (:id, OCTET_LENGTH(:payload))", Some("1"))]),
            batch(&["INSERT INTO ledger (message_id, qty) SELECT id, OCTET_LENGTH(payload) FROM messages"]),
        ] {
            execute(&url, "DELETE FROM ledger").await;
            let handler = prepare(&store, &handler).await;
            run(&store, &handler, &messages).await.unwrap();
            let length = format!("SELECT COUNT(*) FROM ledger WHERE qty = {}", large.len());
            assert_eq!(number(&url, &length).await, 6);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_rule_rejects_the_message_it_is_about() {
    with_both_users(|store, url| async move {
        execute(&url, TABLES).await;
        let handler = prepare(&store, &stock_each()).await;
        let messages = [sale(1, "a", 1), sale(2, "nothing", 1), sale(3, "b", 1)];
        let failure = run(&store, &handler, &messages).await.unwrap_err();
        assert_eq!(failure.at, Some(1));
        let reason = rejection(&failure);
        assert!(reason.starts_with("statement 1 touched 0 rows, expected 1: UPDATE stock"), "{reason}");
        assert_eq!(number(&url, "SELECT COUNT(*) FROM ledger").await, 0);
        run(&store, &handler, &[sale(1, "a", 1), sale(3, "b", 1)]).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_found_count_whether_they_change_or_not() {
    with_both_users(|store, url| async move {
        execute(&url, TABLES).await;
        let handler = each(&[
            ("UPDATE stock SET on_hand = on_hand", Some("2")),
            ("SELECT sku FROM stock WHERE sku = :payload->>'$.sku' FOR UPDATE", Some("1")),
            ("DELETE FROM ledger", Some("0")),
            ("SELECT 1 UNION ALL SELECT 2", Some("2..")),
            ("SET @x = 1", None),
            ("SELECT COUNT(*) INTO @y FROM stock", None),
        ]);
        let handler = prepare(&store, &handler).await;
        run(&store, &handler, &[sale(1, "a", 1), sale(2, "b", 1)]).await.unwrap();
        let failure = run(&store, &handler, &[sale(1, "a", 1), sale(2, "c", 1)]).await.unwrap_err();
        assert!(rejection(&failure).starts_with("statement 2 touched 0 rows"), "{failure:?}");
        assert_eq!(failure.at, Some(1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_its_message_and_its_statement() {
    with_both_users(|store, url| async move {
        execute(&url, TABLES).await;
        let handler = each(&[
            ("UPDATE stock\n   SET on_hand = on_hand - :payload->>'$.qty'\n WHERE sku = :payload->>'$.sku'", None),
            ("INSERT INTO ledger (message_id) VALUES\n\n(:id)", None),
        ]);
        let handler = prepare(&store, &handler).await;
        let check = if is_mariadb() { "(4025)" } else { "(3819)" };
        let failure = run(&store, &handler, &[sale(1, "a", 1), sale(2, "b", 1), sale(3, "a", 100)]).await.unwrap_err();
        let text = failure.error.to_string();
        assert!(text.starts_with("statement 1: ") && text.contains(check) && text.contains("UPDATE stock"), "{text}");
        assert_eq!(failure.at, Some(2));
        assert_eq!(MysqlStore::classify(&*failure.error), ErrorClass::Failed);
        run(&store, &handler, &[sale(2, "a", 1)]).await.unwrap();
        let failure = run(&store, &handler, &[sale(1, "a", 1), sale(2, "a", 1)]).await.unwrap_err();
        let text = failure.error.to_string();
        assert!(text.starts_with("statement 2: Duplicate entry") && text.contains("m-2"), "{text}");
        assert_eq!(failure.at, Some(1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_is_no_json_is_rejected_before_the_database() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        for handler in [stock_each(), batch(&["INSERT INTO ledger (extra) SELECT payload FROM messages"])] {
            let handler = prepare(&store, &handler).await;
            let failure =
                run(&store, &handler, &[sale(1, "a", 1), message(record(2, "{"))]).await.unwrap_err();
            assert_eq!(failure.at, Some(1));
            assert!(rejection(&failure).contains("the payload"), "{failure:?}");
        }
        // Where nobody looks at the payload nobody minds.
        let handler = prepare(&store, &each(&[("INSERT INTO ledger (message_id) VALUES (:id)", None)])).await;
        let mut odd = record(5, "{");
        odd.key = Some(Bytes::from_static(&[0xff]));
        odd.timestamp_ms = Some(i64::MAX);
        run(&store, &handler, &[message(odd)]).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_look_like_parameters_are_columns() {
    with_both_users(|store, url| async move {
        execute(
            &url,
            "CREATE TABLE t (id VARCHAR(50), `key` VARCHAR(50)); INSERT INTO t (id) VALUES ('keep'), ('m-1')",
        )
        .await;
        let handler =
            prepare(&store, &each(&[("DELETE FROM t WHERE id = :id AND `key` IS NULL", Some("1"))])).await;
        run(&store, &handler, &[message(Record::at("t", 0, 1))]).await.unwrap();
        assert_eq!(number(&url, "SELECT COUNT(*) FROM t WHERE id = 'keep'").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_every_collation_are_compared_byte_by_byte() {
    for of_column in [
        "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "CHARACTER SET latin1",
        "CHARACTER SET ascii",
    ] {
        with_both_users(|store, url| async move {
            execute(&url, &format!("CREATE TABLE t (sku VARCHAR(50) {of_column}, n INT)")).await;
            execute(&url, "INSERT INTO t VALUES ('ab', 0), ('AB', 0)").await;
            let by_bytes = each(&[
                ("UPDATE t SET n = n + 1 WHERE sku = :key", Some("1")),
                ("UPDATE t SET n = n + 1 WHERE sku = :topic", Some("0")),
                // How a text out of JSON is compared is for the server to say, but it never fails.
                ("UPDATE t SET n = n WHERE sku = :payload->>'$.sku'", Some("1..")),
                ("UPDATE t SET n = n WHERE sku = JSON_VALUE(:payload, '$.sku')", Some("1..")),
            ]);
            let set = batch(&[
                "UPDATE t JOIN (SELECT `key`, COUNT(*) AS c FROM messages GROUP BY `key`) m ON m.`key` = t.sku SET n = n + c",
            ]);
            for handler in [by_bytes, set] {
                let handler = prepare(&store, &handler).await;
                let mut sold = record(1, r#"{"sku": "ab"}"#);
                sold.key = Some("ab".into());
                run(&store, &handler, &[message(sold)]).await.unwrap();
            }
            assert_eq!(number(&url, "SELECT n FROM t WHERE CAST(sku AS BINARY) = 'ab'").await, 2, "{of_column}");
            assert_eq!(number(&url, "SELECT n FROM t WHERE CAST(sku AS BINARY) = 'AB'").await, 0, "{of_column}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_compare_as_the_column_does() {
    with_both_users(|store, url| async move {
        execute(&url, "CREATE TABLE t (sku VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci)")
            .await;
        execute(&url, "INSERT INTO t VALUES ('ab'), ('AB')").await;
        let handler = each(&[("DELETE FROM t WHERE sku = :key COLLATE utf8mb4_general_ci", Some("2"))]);
        let handler = prepare(&store, &handler).await;
        let mut sold = record(1, "{}");
        sold.key = Some("aB".into());
        run(&store, &handler, &[message(sold)]).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_handlers_run_at_once() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        let sales = prepare(&store, &stock_each()).await;
        let notes = prepare(&store, &each(&[("INSERT INTO ledger (sku) VALUES ('note')", Some("1"))])).await;
        let (many, bare): (Vec<_>, Vec<_>) =
            (0..50).map(|at| (sale(at, "a", 1), message(Record::at("t", 0, 1000 + at)))).unzip();
        let (one, other) = tokio::join!(run(&store, &sales, &many), run(&store, &notes, &bare));
        one.unwrap();
        other.unwrap();
        assert_eq!(number(&url, "SELECT COUNT(*) FROM ledger").await, 100);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_leaves_nothing_in_the_session() {
    with_both_users(|store, url| async move {
        execute(&url, TABLES).await;
        for handler in [stock_each(), batch(&["INSERT INTO ledger (message_id) SELECT id FROM messages"])] {
            let handler = prepare(&store, &handler).await;
            for sku in ["a", "nothing"] {
                execute(&url, "DELETE FROM ledger").await;
                let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
                let outcome = oncebox_core::inbox::Apply::apply(&handler, &mut claimed.txn, &[sale(1, sku, 1)]).await;
                assert!(outcome.is_ok() || sku == "nothing");
                let left = "SELECT CAST(CONCAT_WS('', @oncebox_message, @oncebox_statement, @oncebox_rows, @oncebox_messages) = '' \
                     AS SIGNED)";
                let row = sqlx::query(left).fetch_one(&mut *claimed.txn).await.unwrap();
                assert_eq!(sqlx::Row::get::<i64, _>(&row, 0), 1, "{sku}");
                store.rollback(claimed.txn).await;
            }
        }
    })
    .await;
}
