//! Handlers in SQL against a real server.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use bytes::Bytes;
use oncebox_core::error::Outcome;
use oncebox_core::inbox::{Apply, Failure, Replay, Replayed, replay};
use oncebox_core::inbox::{Identity, Selector};
use oncebox_core::message::{Headers, Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use oncebox_core::store::{DeadLetter, DeadLetters, ErrorClass, Store};
use oncebox_postgres::{PgStore, SqlHandler};
use oncebox_sql::{Handler, PayloadKind, RowRule, SqlHandlerError, Statement};
use support::{consumer, execute, number, with_database, with_store};

const TABLES: &str = "CREATE TABLE stock (sku text PRIMARY KEY, on_hand int NOT NULL CHECK (on_hand >= 0)); \
     INSERT INTO stock VALUES ('a', 100), ('b', 100); \
     CREATE TABLE ledger (id bigserial, message_id text UNIQUE, sku text, qty int, extra jsonb)";

fn each(statements: &[(&str, Option<&str>)]) -> Handler {
    let statement = |(sql, rows): &(&str, Option<&str>)| match rows {
        Some(rows) => Statement::new(*sql).rows(rows.parse::<RowRule>().unwrap()),
        None => Statement::new(*sql),
    };
    Handler::each(statements.iter().map(statement)).unwrap()
}

fn batch(statements: &[&str]) -> Handler {
    Handler::batch(statements.iter().copied()).unwrap()
}

fn stock_each() -> Handler {
    each(&[
        (
            "UPDATE stock SET on_hand = on_hand - (:payload->>'qty')::int WHERE sku = :payload->>'sku'",
            Some("1"),
        ),
        (
            "INSERT INTO ledger(message_id, sku, qty) VALUES (:id, :payload->>'sku', (:payload->>'qty')::int) -- done",
            Some("1"),
        ),
    ])
}

fn record(offset: i64, payload: &str) -> Record {
    let mut record = Record::at("stock.updates", 3, offset);
    record.payload = Some(Bytes::copy_from_slice(payload.as_bytes()));
    record
}

fn message(record: Record) -> Message {
    Message::new(MessageId::new(format!("m-{}", record.offset)).unwrap(), Tenant::none(), record)
}

fn sale(offset: i64, sku: &str, qty: i64) -> Message {
    message(record(offset, &format!(r#"{{"sku": "{sku}", "qty": {qty}}}"#)))
}

/// Runs the handler in a transaction; commits if it worked.
async fn run(store: &PgStore, handler: &SqlHandler, messages: &[Message]) -> Result<(), Failure> {
    let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
    match handler.apply(&mut claimed.txn, messages).await {
        Ok(()) => store.commit(claimed.txn, None).await.unwrap(),
        Err(failure) => {
            store.rollback(claimed.txn).await;
            return Err(failure);
        }
    }
    Ok(())
}

fn rejection(failure: &Failure) -> &str {
    match failure.error.downcast_ref::<Outcome>() {
        Some(Outcome::Reject { reason }) => reason,
        _ => panic!("not a rejection: {failure:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_applies_every_message() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        let handler = SqlHandler::prepare(&store, &stock_each(), PayloadKind::Json).await.unwrap();
        run(&store, &handler, &[sale(1, "a", 2), sale(2, "b", 3), sale(3, "a", 5)]).await.unwrap();
        assert_eq!(number(&store, "SELECT on_hand::bigint FROM stock WHERE sku = 'a'").await, 93);
        assert_eq!(number(&store, "SELECT count(*) FROM ledger").await, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_keeps_the_order_of_the_messages() {
    with_store(|store, _| async move {
        // The result depends on the order of every single step, and so does the sequence.
        execute(&store, "CREATE TABLE chain (value text); INSERT INTO chain VALUES ('')").await;
        execute(&store, "CREATE TABLE seen (at bigserial, place bigint)").await;
        let handler = each(&[
            ("UPDATE chain SET value = md5(value || :offset)", Some("1")),
            ("INSERT INTO seen (place) VALUES (:offset)", None),
        ]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Bytes).await.unwrap();
        let mut messages: Vec<_> = (0..3_000).map(|at| message(Record::at("t", 0, at))).collect();
        fastrand::shuffle(&mut messages);
        for part in messages.chunks(1_000) {
            run(&store, &handler, part).await.unwrap();
        }
        let expected: String = messages.iter().map(|m| format!("({}),", m.record().offset)).collect();
        let expected = expected.trim_end_matches(',');
        let wrong = format!(
            "WITH expected AS (SELECT row_number() OVER () AS at, place FROM (VALUES {expected}) AS v(place)) \
             SELECT count(*) FROM expected JOIN seen USING (at) WHERE seen.place <> expected.place"
        );
        assert_eq!(number(&store, &wrong).await, 0);
        let folded = "WITH RECURSIVE fold AS (SELECT 0::bigint AS at, ''::text AS value UNION ALL \
             SELECT seen.at, md5(fold.value || seen.place) FROM fold JOIN seen ON seen.at = fold.at + 1) \
             SELECT count(*) FROM fold JOIN chain USING (value) WHERE at = 3000";
        assert_eq!(number(&store, folded).await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_parameter_arrives_with_its_type() {
    with_store(|store, _| async move {
        execute(
            &store,
            "CREATE TABLE got (id text, key text, payload jsonb, headers jsonb, topic text, partition int, \
             \"offset\" bigint, at timestamptz, tenant text)",
        )
        .await;
        let sql = "INSERT INTO got VALUES (:id, :key, :payload, :headers, :topic, :partition, :offset, :timestamp, :tenant)";
        let from_batch =
            "INSERT INTO got SELECT id, key, payload, headers, topic, partition, \"offset\", \"timestamp\", tenant FROM messages";
        for handler in [each(&[(sql, Some("1"))]), batch(&[from_batch])] {
            execute(&store, "TRUNCATE got").await;
            let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
            let mut full = record(9, r#"{"ü": [1.50, null]}"#);
            full.key = Some("k'1\\".into());
            full.timestamp_ms = Some(1_700_000_000_123);
            full.headers = Headers::from_iter([("h", Some(Bytes::from("old"))), ("h", Some(Bytes::from("new")))]);
            full.headers.push("raw", Some(Bytes::from_static(&[0xff])));
            let full = Message::new(MessageId::new("id-1").unwrap(), Tenant::new("acme").unwrap(), full);
            let bare = message(Record::at("t", 0, 1));
            run(&store, &handler, &[full, bare]).await.unwrap();
            let good = r#"SELECT count(*) FROM got WHERE id = 'id-1' AND key = 'k''1\' AND payload = '{"ü": [1.50, null]}'
                AND headers = '{"h": "new", "raw": {"base64": "/w=="}}' AND topic = 'stock.updates' AND partition = 3
                AND "offset" = 9 AND at = '2023-11-14T22:13:20.123Z' AND tenant = 'acme'"#;
            assert_eq!(number(&store, good).await, 1);
            let bare = "SELECT count(*) FROM got WHERE key IS NULL AND payload IS NULL AND headers = '{}' AND at IS NULL \
                 AND tenant = ''";
            assert_eq!(number(&store, bare).await, 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_and_bytes_are_what_they_say() {
    with_store(|store, _| async move {
        execute(&store, "CREATE TABLE got (t text, b bytea)").await;
        let text = each(&[("INSERT INTO got (t) VALUES (:payload || '!')", None)]);
        let text = SqlHandler::prepare(&store, &text, PayloadKind::Text).await.unwrap();
        run(&store, &text, &[message(record(1, "grüße"))]).await.unwrap();
        let bytes = batch(&["INSERT INTO got (b) SELECT payload FROM messages"]);
        let bytes = SqlHandler::prepare(&store, &bytes, PayloadKind::Bytes).await.unwrap();
        let mut raw = record(2, "");
        raw.payload = Some(Bytes::from_static(&[0, 0xff]));
        run(&store, &bytes, &[message(raw.clone())]).await.unwrap();
        assert_eq!(number(&store, r"SELECT count(*) FROM got WHERE t = 'grüße!' OR b = '\x00ff'").await, 2);
        let failure = run(&store, &text, &[message(record(1, "ok")), message(raw)]).await.unwrap_err();
        assert_eq!(failure.at, Some(1));
        assert!(rejection(&failure).contains("not UTF-8"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_rule_rejects_the_message_it_is_about() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        let handler = SqlHandler::prepare(&store, &stock_each(), PayloadKind::Json).await.unwrap();
        let messages = [sale(1, "a", 1), sale(2, "nothing", 1), sale(3, "b", 1)];
        let failure = run(&store, &handler, &messages).await.unwrap_err();
        assert_eq!(failure.at, Some(1));
        let reason = rejection(&failure);
        assert!(reason.starts_with("statement 1 touched 0 rows, expected 1: UPDATE stock"), "{reason}");
        assert_eq!(number(&store, "SELECT count(*) FROM ledger").await, 0);
        run(&store, &handler, &[sale(1, "a", 1), sale(3, "b", 1)]).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_return_rows_are_counted_too() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        execute(
            &store,
            "CREATE FUNCTION note(text) RETURNS void LANGUAGE sql AS 'INSERT INTO ledger (sku) VALUES ($1)'",
        )
        .await;
        let handler = each(&[
            ("SELECT FROM stock WHERE sku = :payload->>'sku' FOR UPDATE", Some("1")),
            ("SELECT note(:payload->>'sku')", None),
            (
                "UPDATE stock SET on_hand = on_hand + 1 WHERE sku = :payload->>'sku' RETURNING sku, on_hand",
                Some("1..2"),
            ),
            (
                "WITH x AS (SELECT :payload->>'sku' AS s) DELETE FROM stock USING x WHERE sku = x.s || '!'",
                Some("0"),
            ),
            ("VALUES (1), (2)", Some("2..")),
        ]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        run(&store, &handler, &[sale(1, "a", 1), sale(2, "b", 1)]).await.unwrap();
        assert_eq!(number(&store, "SELECT count(*) FROM ledger").await, 2);
        assert_eq!(number(&store, "SELECT sum(on_hand) FROM stock").await, 202);
        let failure = run(&store, &handler, &[sale(1, "c", 1)]).await.unwrap_err();
        assert!(rejection(&failure).starts_with("statement 1 touched 0 rows"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_statements_see_the_relation_messages() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        let handler = batch(&[
            "UPDATE stock s SET on_hand = on_hand - m.qty FROM (SELECT payload->>'sku' AS sku, \
             sum((payload->>'qty')::int) AS qty FROM messages GROUP BY 1) m WHERE s.sku = m.sku",
            "/* own */ with mine AS (SELECT id, payload FROM messages) \
             INSERT INTO ledger (message_id, sku, qty, extra) \
             SELECT id, payload->>'sku', (payload->>'qty')::int, payload FROM mine RETURNING id",
            "WITH RECURSIVE n(i) AS (SELECT count(*) FROM messages UNION ALL SELECT i - 1 FROM n WHERE i > 1) \
             INSERT INTO ledger (sku) SELECT 'n' || i FROM n",
        ]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        run(&store, &handler, &[sale(1, "a", 2), sale(2, "b", 3), sale(3, "a", 5)]).await.unwrap();
        assert_eq!(number(&store, "SELECT on_hand::bigint FROM stock WHERE sku = 'a'").await, 93);
        assert_eq!(number(&store, "SELECT count(*) FROM ledger WHERE extra->>'sku' = sku").await, 3);
        assert_eq!(number(&store, "SELECT count(*) FROM ledger WHERE sku LIKE 'n%'").await, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_statement_that_takes_whole_rows_gets_them() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        for sql in [
            "INSERT INTO ledger (extra) SELECT to_jsonb(m) FROM messages m",
            "INSERT INTO ledger (extra) SELECT to_jsonb(x) FROM (SELECT * FROM messages) x",
            "WITH x AS (TABLE messages) INSERT INTO ledger (extra) SELECT to_jsonb(x) FROM x",
        ] {
            execute(&store, "TRUNCATE ledger").await;
            let handler = SqlHandler::prepare(&store, &batch(&[sql]), PayloadKind::Json).await.unwrap();
            let mut whole = record(7, "[]");
            whole.key = Some("k".into());
            whole.timestamp_ms = Some(0);
            run(&store, &handler, &[message(whole)]).await.unwrap();
            let keys = "SELECT count(*) FROM ledger, jsonb_each(extra) WHERE value <> 'null'";
            assert_eq!(number(&store, keys).await, 9, "{sql}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_is_no_json_is_rejected_before_the_database() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        for handler in [stock_each(), batch(&["INSERT INTO ledger (extra) SELECT payload FROM messages"])] {
            let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
            for bad in ["{", r#"{"a": "\u0000"}"#, "1e400000", r#""\ud800""#] {
                let failure =
                    run(&store, &handler, &[sale(1, "a", 1), message(record(2, bad))]).await.unwrap_err();
                assert_eq!(failure.at, Some(1));
                assert!(rejection(&failure).contains("the payload"), "{failure:?}");
            }
        }
        // Where nobody looks at the payload nobody minds.
        let handler = each(&[("INSERT INTO ledger (message_id) VALUES (:id)", None)]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        let mut odd = record(5, "{");
        odd.key = Some(Bytes::from_static(&[0xff]));
        odd.timestamp_ms = Some(i64::MAX);
        run(&store, &handler, &[message(odd.clone())]).await.unwrap();
        let handler = each(&[("INSERT INTO ledger (sku, extra) VALUES (:key, to_jsonb(:timestamp))", None)]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        assert!(
            rejection(&run(&store, &handler, &[message(odd.clone())]).await.unwrap_err()).contains("key")
        );
        odd.key = None;
        assert!(rejection(&run(&store, &handler, &[message(odd)]).await.unwrap_err()).contains("timestamp"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_its_statement() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        let handler = each(&[
            ("UPDATE stock\n   SET on_hand = on_hand - (:payload->>'qty')::int\n WHERE sku = :payload->>'sku'", None),
            ("INSERT INTO ledger(message_id) VALUES\n\n(:id)", None),
            ("SELECT 1 /\n (on_hand - 1) FROM stock WHERE sku = :payload->>'sku'", None),
        ]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        for (qty, expected, state) in [
            (101, "statement 1: ", "(23514)"),
            (99, "statement 3: division by zero", "(22012)"),
        ] {
            let failure = run(&store, &handler, &[sale(1, "a", qty)]).await.unwrap_err();
            let text = failure.error.to_string();
            assert!(text.starts_with(expected) && text.contains(state), "{text}");
            assert_eq!(failure.at, Some(0));
            assert_eq!(PgStore::classify(&*failure.error), ErrorClass::Failed);
        }
        run(&store, &handler, &[sale(1, "a", 1)]).await.unwrap();
        let failure = run(&store, &handler, &[sale(1, "a", 1)]).await.unwrap_err();
        let text = failure.error.to_string();
        assert!(text.starts_with("statement 2: duplicate key") && text.contains("m-1"), "{text}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_statements_are_all_found_at_the_start() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        let handler = each(&[
            ("UPDATE stok SET on_hand = 1 WHERE sku = :id", None),
            ("UPDATE stock SET on_hand = 1 WHERE sku = :id", None),
            ("INSERT INTO ledger (nope) VALUES (:id)", None),
            ("UPDATE stock SET on_hand = :id", None),
            ("UPDAT stock", None),
        ]);
        let error = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap_err();
        let SqlHandlerError::Statements(bad) = &error else { panic!("{error}") };
        let numbers: Vec<_> = bad.iter().map(|bad| bad.number).collect();
        assert_eq!(numbers, [1, 3, 4, 5], "{error}");
        assert!(bad[0].reason.contains("stok"), "{error}");
        let wrong = batch(&["INSERT INTO ledger (message_id) SELECT idd FROM messages"]);
        let error = SqlHandler::prepare(&store, &wrong, PayloadKind::Json).await.unwrap_err();
        assert!(error.to_string().contains("statement 1: column \"idd\" does not exist"), "{error}");
        assert_eq!(
            number(&store, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'oncebox_probe%'").await,
            0
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_look_like_parameters_are_columns() {
    with_store(|store, _| async move {
        execute(
            &store,
            "CREATE TABLE t (id text, key text, oncebox_rows_ int); INSERT INTO t VALUES ('keep'), ('m-1')",
        )
        .await;
        let handler = each(&[("DELETE FROM t WHERE id = :id AND oncebox_rows_ IS NULL", Some("1"))]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        run(&store, &handler, &[message(Record::at("t", 0, 1))]).await.unwrap();
        assert_eq!(number(&store, "SELECT count(*) FROM t WHERE id = 'keep'").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_not_ours_get_the_function_too() {
    with_database(|url| async move {
        let pool = sqlx::PgPool::connect(&url).await.unwrap();
        for store in [PgStore::from_pool(pool), PgStore::builder(&url).pooler(true).connect().await.unwrap()]
        {
            store.migrate().await.unwrap();
            execute(&store, "DROP TABLE IF EXISTS stock, ledger").await;
            execute(&store, TABLES).await;
            let handler = SqlHandler::prepare(&store, &stock_each(), PayloadKind::Json).await.unwrap();
            for at in 0..3 {
                run(&store, &handler, &[sale(at, "a", 1)]).await.unwrap();
            }
            assert_eq!(number(&store, "SELECT count(*) FROM ledger").await, 3);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_function_is_database_trouble_and_comes_back() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        let handler = SqlHandler::prepare(&store, &stock_each(), PayloadKind::Json).await.unwrap();
        let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
        sqlx::raw_sql("DISCARD TEMP").execute(&mut *claimed.txn).await.unwrap();
        let name: String = sqlx::query_scalar(
            "SELECT oid::regprocedure::text FROM pg_proc WHERE proname LIKE 'oncebox_each%' \
             AND pronamespace = pg_my_temp_schema()",
        )
        .fetch_optional(&mut *claimed.txn)
        .await
        .unwrap()
        .unwrap_or_default();
        if !name.is_empty() {
            let drop = format!("DROP FUNCTION {name}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(drop)).execute(&mut *claimed.txn).await.unwrap();
        }
        let failure = handler.apply(&mut claimed.txn, &[sale(1, "a", 1)]).await.unwrap_err();
        assert_eq!(PgStore::classify(&*failure.error), ErrorClass::Transient, "{failure:?}");
        store.rollback(claimed.txn).await;
        run(&store, &handler, &[sale(1, "a", 1)]).await.unwrap();
    })
    .await;
}

/// Applies a message as the engine does, which knows the consumer.
async fn replay_one(store: &PgStore, handler: &SqlHandler, id: &str) {
    let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
    let mut record = record(7, r#"{"sku": "a", "qty": 2}"#);
    record.headers.push("traceparent", Some("00-1-2-01".into()));
    record.headers.push("correlation-id", Some("case-1".into()));
    let letter = DeadLetter {
        tenant: Tenant::new("acme").unwrap(),
        message_id: Some(id.to_owned()),
        record,
        error: "first".to_owned(),
        attempts: 1,
    };
    store.park(&mut claimed.txn, &consumer(), &[letter]).await.unwrap();
    store.commit(claimed.txn, None).await.unwrap();
    let letter = number(store, "SELECT max(number) FROM oncebox_dead").await;
    let (consumer, identity) = (consumer(), Identity::new(Selector::Key, None));
    let how = Replay { consumer: &consumer, identity: &identity, in_order: true };
    let replayed = replay(store, handler, how, letter).await.unwrap();
    assert!(matches!(replayed, Replayed::Applied), "{replayed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_handler_know_their_cause() {
    with_store(|store, _| async move {
        execute(&store, TABLES).await;
        let emits = "SELECT oncebox_emit('stock.changed', :payload->>'sku', (:payload)::json)";
        let handler = each(&[("UPDATE stock SET on_hand = 1 WHERE sku = 'a'", Some("1")), (emits, Some("1"))]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        replay_one(&store, &handler, "m-each").await;
        let emits = "SELECT oncebox_emit('stock.batch', payload->>'sku', payload::json) FROM messages";
        let handler = SqlHandler::prepare(&store, &batch(&[emits]), PayloadKind::Json).await.unwrap();
        replay_one(&store, &handler, "m-batch").await;

        let sql = "SELECT topic, consumer, tenant, causation_id, \
             (headers->>'traceparent') || ' ' || (headers->>'correlation-id') FROM oncebox_outbox ORDER BY seq";
        type Row = (String, Option<String>, Option<String>, Option<String>, Option<String>);
        let rows: Vec<Row> = sqlx::query_as(sql).fetch_all(store.pool()).await.unwrap();
        let some = |text: &str| Some(text.to_owned());
        let of_each = ("stock.changed".to_owned(), some("stock"), some("acme"), some("m-each"), some("00-1-2-01 case-1"));
        let of_batch = ("stock.batch".to_owned(), some("stock"), None, None, None);
        assert_eq!(rows, [of_each, of_batch]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_event_is_the_failure_of_its_message() {
    with_store(|store, _| async move {
        let handler = each(&[("SELECT oncebox_emit(:payload->>'sku', NULL, '{}')", None)]);
        let handler = SqlHandler::prepare(&store, &handler, PayloadKind::Json).await.unwrap();
        let failure = run(&store, &handler, &[sale(1, "no topic", 1)]).await.unwrap_err();
        assert_eq!(failure.at, Some(0));
        let error = failure.error.to_string();
        assert!(error.contains("statement 1") && error.contains("'no topic' is not a topic"), "{error}");
        run(&store, &handler, &[sale(2, "a.topic", 1)]).await.unwrap();
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_outbox WHERE causation_id = 'm-2'").await, 1);
    })
    .await;
}
