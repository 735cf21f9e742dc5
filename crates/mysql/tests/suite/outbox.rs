//! How others write into the outbox, and what is read from it.

use std::collections::BTreeMap;

use oncebox_core::outbox::{Emit, Event, Relay};
use oncebox_core::store::{ErrorClass, EventFilter, EventState, Outbox, OutboxAdmin, Status, Store, Sweep};
use oncebox_mysql::MysqlStore;
use oncebox_testkit::conformance::ready;
use oncebox_testkit::{FakeSink, drain};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};

use super::by_hand::{HOUR, HandRelay, MANY, emit, every, text};
use super::support::{Database, consumer, execute, number, with_store};

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_insert_is_an_event() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        execute(
            &url,
            "SET SESSION time_zone = '+05:00'; \
             INSERT INTO oncebox_outbox (topic, `key`, payload) VALUES ('t', 'k', '{}'), ('t', NULL, NULL)",
        )
        .await;
        let mut events = relay.next("t").await;
        events.sort_by_key(|event| event.seq);
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].key.as_deref(), Some(b"k".as_slice()));
        assert_eq!(text(&events[0]), "{}");
        assert_eq!((&events[1].key, &events[1].payload), (&None, &None));
        assert_ne!(events[0].id, events[1].id);
        for event in events {
            assert_eq!(event.id.get_version_num(), 7);
            assert_eq!(event.id.get_variant(), uuid::Variant::RFC4122);
            let (seconds, nanos) = event.id.get_timestamp().unwrap().to_unix();
            let made_at = i64::try_from(seconds).unwrap() * 1000 + i64::from(nanos / 1_000_000);
            assert!((event.created_at_ms - made_at).abs() < 1000, "{made_at} and {}", event.created_at_ms);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_insert_that_is_no_event_is_refused() {
    with_store(|_, url| async move {
        let mut conn = MySqlConnection::connect(&url).await.unwrap();
        let long = format!("'{}'", "t".repeat(250));
        let topics = ["''", "'a b'", "'t '", "'t\n'", "'ä'", "'.'", "'..'", long.as_str()];
        let wrong = topics.map(|topic| format!("(topic) VALUES ({topic})"));
        let ids = ["'x'", "'00000000-0000-7000-8000-00000000000A'", "''"];
        for values in wrong.into_iter().chain(ids.map(|id| format!("(topic, id) VALUES ('t', {id})"))) {
            let sql = format!("INSERT INTO oncebox_outbox {values}");
            let error = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap_err();
            assert_eq!(MysqlStore::classify(&error), ErrorClass::Failed, "{values}: {error}");
        }
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_outbox").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_keys_are_spread_over_all_shards() {
    with_store(|_, url| async move {
        let rows = vec!["('t')"; 1000].join(", ");
        execute(&url, &format!("INSERT INTO oncebox_outbox (topic) VALUES {rows}")).await;
        assert_eq!(number(&url, "SELECT COUNT(DISTINCT shard) FROM oncebox_outbox").await, 16);
        let strays = "SELECT COUNT(*) FROM oncebox_outbox WHERE shard NOT BETWEEN 0 AND 15 OR shard IS NULL";
        assert_eq!(number(&url, strays).await, 0);
        assert_eq!(number(&url, "SELECT COUNT(DISTINCT id) FROM oncebox_outbox").await, 1000);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emit_works_on_connections_and_transactions() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let mut conn = MySqlConnection::connect(&url).await.unwrap();
        let mut tx = conn.begin().await.unwrap();
        let id = tx.emit(Event::to("t").key("k").bytes("transaction")).await.unwrap();
        assert!(relay.next("t").await.is_empty());
        tx.commit().await.unwrap();
        let mut rolled_back = conn.begin().await.unwrap();
        rolled_back.emit(Event::to("t").bytes("never")).await.unwrap();
        rolled_back.rollback().await.unwrap();
        conn.emit(Event::to("t").key("k").bytes("connection")).await.unwrap();
        let events = relay.next("t").await;
        assert_eq!(events.iter().map(text).collect::<Vec<_>>(), ["transaction", "connection"]);
        assert_eq!(events[0].id, id);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_and_small_events_keep_their_order() {
    with_store(|store, _| async move {
        let relay = HandRelay::start(&store).await;
        // Around the size of a message, and far beyond it.
        let sizes = [10, 262_000, 263_000, 100, 1_000_000, 1, 262_144, 3_000_000, 0];
        let events: Vec<Event> =
            sizes.iter().map(|size| Event::to("t").key("k").bytes(vec![0xff; *size])).collect();
        let mut txn = store.claim(&consumer(), &[]).await.unwrap().txn;
        txn.emit_all(&events).await.unwrap();
        store.commit(txn, None).await.unwrap();
        let wide = oncebox_core::inbox::BatchBounds { bytes: 64 * 1024 * 1024, ..MANY };
        let read = store.next_events("t", &relay.shards(), wide).await.unwrap();
        let found: Vec<usize> = read.iter().map(|event| event.payload.as_ref().unwrap().len()).collect();
        assert_eq!(found, sizes);
        assert!(read.iter().zip(&events).all(|(read, event)| read.id == event.id()));
    })
    .await;
}

/// The row of the event that a call wrote, which leaves its id in `@id`.
async fn emitted(conn: &mut MySqlConnection, call: &'static str) -> sqlx::Result<MySqlRow> {
    sqlx::raw_sql(call).execute(&mut *conn).await?;
    let sql = "SELECT CONVERT(`key` USING utf8mb4), CONVERT(payload USING utf8mb4), headers, consumer, tenant, causation_id \
         FROM oncebox_outbox WHERE id = CONVERT(@id USING ascii)";
    sqlx::query(sql).fetch_one(conn).await
}

fn columns(row: &MySqlRow) -> [Option<String>; 6] {
    std::array::from_fn(|at| row.get(at))
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn procedures_delay_events() {
    with_store(|store, url| async move {
        let mut conn = MySqlConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("SET SESSION time_zone = '+05:00'").execute(&mut conn).await.unwrap();
        for call in [
            "CALL oncebox_emit_at('t', 'a', '{}', NULL, '2999-01-01 00:00:00', @id)",
            "CALL oncebox_emit_bytes_at('t', 'b', 'x', NULL, UTC_TIMESTAMP() + INTERVAL 1 HOUR, @id)",
            "CALL oncebox_emit_at('t', 'c', NULL, NULL, '2026-01-02 03:04:05.678', @id)",
            "CALL oncebox_emit_at('t', 'd', '{}', NULL, NULL, @id)",
        ] {
            emitted(&mut conn, call).await.unwrap();
        }
        execute(&url, "INSERT INTO oncebox_outbox (topic, deliver_at) VALUES ('t', '2999-01-01 00:00:00')")
            .await;
        let entries = store.events(&every()).await.unwrap();
        let states: Vec<EventState> = entries.iter().map(|entry| entry.state).collect();
        let (delayed, pending) = (EventState::Delayed, EventState::Pending);
        assert_eq!(states, [delayed, delayed, pending, pending, delayed]);
        let times: Vec<_> = entries.iter().map(|entry| entry.event.deliver_at_ms).collect();
        assert_eq!((times[2], times[3]), (Some(1_767_323_045_678), None));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_languages_emit_with_procedures() {
    with_store(|store, url| async move {
        let mut conn = MySqlConnection::connect(&url).await.unwrap();
        let call = r#"CALL oncebox_emit('t', 'k', '{"b" : 1,  "a":1.0}', '{}', @id)"#;
        let row = emitted(&mut conn, call).await.unwrap();
        let json = some(r#"{"content-type":"application/json"}"#);
        assert_eq!(columns(&row), [some("k"), some(r#"{"b" : 1,  "a":1.0}"#), json, None, None, None]);
        let row = emitted(&mut conn, "CALL oncebox_emit('t', NULL, NULL, NULL, @id)").await.unwrap();
        assert_eq!(columns(&row), [None, None, some("{}"), None, None, None]);
        let row = emitted(&mut conn, "CALL oncebox_emit_bytes('t', 'k', 'x', NULL, @id)").await.unwrap();
        assert_eq!(columns(&row)[1..3], [some("x"), some("{}")]);

        sqlx::raw_sql(
            "SET @oncebox_consumer = 'stock', @oncebox_tenant = 'acme', @oncebox_causation_id = 'm-1', \
             @oncebox_traceparent = '00-1-2-01', @oncebox_correlation_id = 'case-1'",
        )
        .execute(&mut conn)
        .await
        .unwrap();
        let call = r#"CALL oncebox_emit('t', 'k', '1', ' { "x": "ü" } ', @id)"#;
        let row = emitted(&mut conn, call).await.unwrap();
        let headers = some(
            r#"{"correlation-id":"case-1","traceparent":"00-1-2-01","content-type":"application/json", "x": "ü" } "#,
        );
        assert_eq!(columns(&row), [some("k"), some("1"), headers, some("stock"), some("acme"), some("m-1")]);
        let call =
            r#"CALL oncebox_emit('t', 'k', '1', '[["traceparent", "mine"], ["correlation-id", "x"], ["content-type", "x"]]', @id)"#;
        let row = emitted(&mut conn, call).await.unwrap();
        assert_eq!(
            columns(&row)[2],
            some(r#"[["traceparent", "mine"], ["correlation-id", "x"], ["content-type", "x"]]"#)
        );
        let unset = "SET @oncebox_consumer = NULL, @oncebox_tenant = NULL, @oncebox_causation_id = NULL, \
             @oncebox_traceparent = NULL, @oncebox_correlation_id = NULL";
        sqlx::raw_sql(unset).execute(&mut conn).await.unwrap();
        let row = emitted(&mut conn, "CALL oncebox_emit('t', 'k', '1', '[]', @id)").await.unwrap();
        let headers = some(r#"[["content-type","application/json"]]"#);
        assert_eq!(columns(&row)[2..], [headers, None, None, None]);

        let relay = HandRelay::start(&store).await;
        let mut events = relay.next("t").await;
        events.sort_by_key(|event| event.seq);
        assert_eq!(events.len(), 6);
        assert_eq!(events[3].headers.last("x"), Some("ü".as_bytes()));
        assert_eq!(events[3].causation_id.as_deref(), Some("m-1"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn procedures_refuse_what_is_no_event() {
    with_store(|_, url| async move {
        let mut conn = MySqlConnection::connect(&url).await.unwrap();
        for (call, why) in [
            ("CALL oncebox_emit('a/b', 'k', '{}', '{}', @id)", "'a/b' is not a topic"),
            ("CALL oncebox_emit(NULL, 'k', '{}', '{}', @id)", "NULL is not a topic"),
            ("CALL oncebox_emit('', 'k', '{}', '{}', @id)", "'' is not a topic"),
            ("CALL oncebox_emit('..', 'k', '{}', '{}', @id)", "'..' is not a topic"),
            ("CALL oncebox_emit('t ', 'k', '{}', '{}', @id)", "'t ' is not a topic"),
            ("CALL oncebox_emit('t\n', 'k', '{}', '{}', @id)", "is not a topic"),
            ("CALL oncebox_emit('ä', 'k', '{}', '{}', @id)", "'ä' is not a topic"),
            ("CALL oncebox_emit(REPEAT('t', 250), 'k', '{}', '{}', @id)", "is not a topic"),
            (
                "CALL oncebox_emit('t', REPEAT('k', 65537), '{}', '{}', @id)",
                "the key of an event to t has 65537 bytes",
            ),
            ("CALL oncebox_emit('t', 'k', '{', '{}', @id)", "the payload of an event to t is not JSON"),
            ("CALL oncebox_emit('t', 'k', '', '{}', @id)", "the payload of an event to t is not JSON"),
            ("CALL oncebox_emit('t', 'k', '{}', '7', @id)", "the headers of an event to t must be"),
            ("CALL oncebox_emit('t', 'k', '{}', '', @id)", "the headers of an event to t must be"),
            ("CALL oncebox_emit('t', 'k', '{}', 'null', @id)", "the headers of an event to t must be"),
            (
                "CALL oncebox_emit('t', 'k', '{}', '{\"a\": [1]}', @id)",
                "the headers of an event to t must be",
            ),
            ("CALL oncebox_emit('t', 'k', '{}', '{\"a\": {}}', @id)", "the headers of an event to t must be"),
            ("CALL oncebox_emit('t', 'k', '{}', '[[\"a\"]]', @id)", "the headers of an event to t must be"),
            (
                "CALL oncebox_emit('t', 'k', '{}', '[[1, \"a\"]]', @id)",
                "the headers of an event to t must be",
            ),
            ("CALL oncebox_emit('t', 'k', '{}', '[null]', @id)", "the headers of an event to t must be"),
            ("CALL oncebox_emit_bytes('t', 'k', 'x', '[7]', @id)", "the headers of an event to t must be"),
            (
                "CALL oncebox_emit('t', 'k', '{}', CONCAT('{\"a\":\"', REPEAT('x', 262144), '\"}'), @id)",
                "the headers of an event to t have 262152 bytes",
            ),
        ] {
            let error = emitted(&mut conn, call).await.unwrap_err();
            assert_eq!(MysqlStore::classify(&error), ErrorClass::Failed, "{call}: {error}");
            let error = error.as_database_error().unwrap();
            assert_eq!(error.code().as_deref(), Some("45000"), "{call}: {error}");
            assert!(error.message().contains(why), "{call}: {error}");
        }
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_outbox").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_leaves_the_callers_last_id_alone() {
    with_store(|_, url| async move {
        let mut conn = MySqlConnection::connect(&url).await.unwrap();
        let sql = "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 700; \
             INSERT INTO orders () VALUES (); CALL oncebox_emit('t', 'k', '1', '{}', @id)";
        sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
        let last: u64 = sqlx::query_scalar("SELECT LAST_INSERT_ID()").fetch_one(&mut conn).await.unwrap();
        assert_eq!(last, 700);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_has_no_cause_of_an_earlier_transaction() {
    with_store(|store, _| async move {
        for text in ["caused", "later"] {
            // The same connection each time.
            let mut txn = store.claim(&consumer(), &[]).await.unwrap().txn;
            sqlx::raw_sql("CALL oncebox_emit_bytes('t', 'k', 'x', NULL, @id)")
                .execute(&mut *txn)
                .await
                .unwrap();
            sqlx::raw_sql(
                "SET @oncebox_causation_id = 'm-1', @oncebox_consumer = 'stock', @oncebox_tenant = 'acme'",
            )
            .execute(&mut *txn)
            .await
            .unwrap();
            store.commit(txn, None).await.unwrap();
            let entry = store.events(&every()).await.unwrap().pop().unwrap();
            assert_eq!(
                (entry.event.causation_id, entry.consumer, entry.tenant),
                (None, None, None),
                "{text}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_databases_own_character_set_does_not_matter() {
    let database = Database::create().await;
    execute(&database.url, &format!("ALTER DATABASE {} CHARACTER SET latin1", database.name)).await;
    let store = MysqlStore::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let relay = HandRelay::start(&store).await;
    let seqs = emit(&store, "t", &[("ключ", "ü\u{1F980}"), ("ключ", "behind")]).await;
    let call = "CALL oncebox_emit('t', 'ключ', '\"\u{1F980}\"', '{\"x\": \"ж\"}', @id)";
    execute(&database.url, call).await;
    let events = relay.next("t").await;
    assert_eq!(events.iter().map(text).collect::<Vec<_>>(), ["ü\u{1F980}", "behind", "\"\u{1F980}\""]);
    assert!(events.iter().all(|event| event.key.as_deref() == Some("ключ".as_bytes())));
    assert_eq!(events[2].headers.last("x"), Some("ж".as_bytes()));
    relay.hold(seqs[0], HOUR).await;
    assert!(relay.next("t").await.is_empty());
    assert_eq!(relay.entries().await[0].error.as_deref(), Some("the broker said no"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_no_events_are_parked() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        execute(
            &url,
            "INSERT INTO oncebox_outbox (topic, `key`, headers, payload) VALUES ('t', 'k', '[1]', 'bad'), \
             ('t', 'k', 'no JSON', 'bad'), ('t', 'k', '{\"n\": 1}', 'good')",
        )
        .await;
        assert_eq!(relay.texts("t").await, ["good"]);
        let parked = EventFilter { state: Some(EventState::Parked), ..every() };
        let parked = store.events(&parked).await.unwrap();
        let errors: Vec<&str> = parked.iter().map(|entry| entry.error.as_deref().unwrap()).collect();
        assert_eq!(errors.len(), 2);
        assert!(errors.iter().all(|error| error.contains("headers")), "{errors:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowded_shard_fills_the_batch() {
    with_store(|store, _| async move {
        let relay = HandRelay::start(&store).await;
        emit(&store, "t", &[("one key", "x"); 1500]).await;
        assert_eq!(relay.next("t").await.len(), MANY.messages);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_topics_are_all_found() {
    with_store(|store, url| async move {
        let topics: Vec<String> = (0..100).map(|n| format!("t{n:03}")).collect();
        let rows: Vec<String> =
            topics.iter().map(|topic| format!("('{topic}', 'k'), ('{topic}', 'l')")).collect();
        execute(&url, &format!("INSERT INTO oncebox_outbox (topic, `key`) VALUES {}", rows.join(", "))).await;
        let ready = ready(&store, &(0..16).collect::<Vec<_>>()).await.unwrap();
        let mut found: Vec<&str> = ready.iter().map(|(topic, _)| topic.as_str()).collect();
        found.dedup();
        assert_eq!(found, topics);
        let oldest = store.status(10).await.unwrap().outbox;
        assert_eq!((oldest.pending, oldest.held), (10, 0));
        assert!(oldest.oldest.is_some());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_publishes_in_order_what_several_write() {
    with_store(|store, url| async move {
        let mut writers = Vec::new();
        for writer in 0..3 {
            let (store, url) = (store.clone(), url.clone());
            writers.push(tokio::spawn(async move {
                for n in 0..40 {
                    if n % 2 == 0 {
                        emit(&store, "t", &[(&format!("w{writer}"), &n.to_string())]).await;
                    } else {
                        let call = format!("CALL oncebox_emit('t', 'w{writer}', '{n}', '{{}}', @id)");
                        execute(&url, &call).await;
                    }
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
        let sink = FakeSink::new();
        sink.fail_next(7);
        drain(&store, Relay::new(store.clone()).sink(sink.clone())).await;
        let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in sink.delivered().all() {
            let key = String::from_utf8(event.key().unwrap().to_vec()).unwrap();
            let text = String::from_utf8(event.payload().unwrap().to_vec()).unwrap();
            by_key.entry(key).or_default().push(text);
        }
        let expected: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        assert_eq!(by_key.len(), 3);
        assert!(by_key.values().all(|texts| *texts == expected), "{by_key:?}");
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_outbox").await, 0);
    })
    .await;
}

fn sweep_of(name: &str, sql: &str) -> Sweep {
    Sweep {
        name: name.to_owned(),
        query: sql.to_owned(),
        row_key: "id".to_owned(),
        window: HOUR,
        topic: "t".to_owned(),
        event_key: None,
        limit: 10,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_of_a_sweep_names_the_setting() {
    with_store(|store, url| async move {
        let check = async |sweep: Sweep| store.check_sweep(&sweep).await.unwrap_err().to_string();
        let error = check(sweep_of("s", "SELECT 1 AS number, 2 AS amount")).await;
        assert!(error.contains("key names the column id, its query has number, amount"), "{error}");
        let error = check(Sweep { event_key: some("sku"), ..sweep_of("s", "SELECT 1 AS id") }).await;
        assert!(error.contains("emit.key names the column sku, its query has id"), "{error}");
        execute(&url, "CREATE TABLE orders (id INT)").await;
        for sql in ["DELETE FROM orders", "SELECT 1 AS id; DELETE FROM orders", "SELECT ? AS id", ""] {
            let error = check(sweep_of("s", sql)).await;
            assert!(error.contains("sweep s"), "{sql}: {error}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_writes_every_type_as_json() {
    with_store(|store, url| async move {
        execute(
            &url,
            "CREATE TABLE odd (id BINARY(2) PRIMARY KEY, big BIGINT UNSIGNED, price DECIMAL(30, 10), ratio DOUBLE, \
                 filled INT(5) ZEROFILL, name VARCHAR(20) CHARACTER SET latin1, bits BIT(12), at DATETIME(3), none INT); \
             INSERT INTO odd VALUES (0x00ff, 18446744073709551615, 12345678901234567890.5, 0.5, 42, 'ü\"', b'100000000001', \
                 '2026-01-02 03:04:05.678', NULL)",
        )
        .await;
        let sweep = Sweep { event_key: some("name"), ..sweep_of("odd", "SELECT * FROM odd -- all of them") };
        assert_eq!(store.sweep(&sweep).await.unwrap(), 1);
        assert_eq!(store.sweep(&sweep).await.unwrap(), 0);
        let relay = HandRelay::start(&store).await;
        let event = relay.next("t").await.remove(0);
        assert_eq!(
            text(&event),
            r#"{"id":"AP8=","big":18446744073709551615,"price":12345678901234567890.5000000000,"ratio":0.5,"filled":"00042","name":"ü\"","bits":2049,"at":"2026-01-02 03:04:05.678","none":null}"#
        );
        assert_eq!(event.key.as_deref(), Some("ü\"".as_bytes()));
        assert_eq!(event.headers.last("oncebox-sweep"), Some(b"odd".as_slice()));
    })
    .await;
}
