//! How other languages write events: `oncebox_emit` and `oncebox_emit_bytes`.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use oncebox_core::store::{EventState, OutboxAdmin};
use sqlx::{Connection, PgConnection, Row};
use support::relay::{HandRelay, every};
use support::{number, with_store};
use uuid::Uuid;

/// The row of the last event that a statement wrote.
async fn emitted(conn: &mut PgConnection, call: &'static str) -> Result<sqlx::postgres::PgRow, sqlx::Error> {
    let id: Uuid = sqlx::query_scalar(call).fetch_one(&mut *conn).await?;
    let sql = "SELECT convert_from(key, 'UTF8'), convert_from(payload, 'UTF8'), headers::text, consumer, tenant, \
         causation_id FROM oncebox_outbox WHERE id = $1";
    sqlx::query(sql).bind(id).fetch_one(conn).await
}

#[tokio::test(flavor = "multi_thread")]
async fn other_languages_emit_with_functions() {
    with_store(|store, url| async move {
        let mut conn = PgConnection::connect(&url).await.unwrap();
        let of =
            |row: &sqlx::postgres::PgRow| -> [Option<String>; 6] { std::array::from_fn(|at| row.get(at)) };
        let some = |text: &str| Some(text.to_owned());
        let row =
            emitted(&mut conn, r#"SELECT oncebox_emit('t', 'k', '{"b" : 1,  "a":1.0}')"#).await.unwrap();
        let json = some(r#"{"content-type":"application/json"}"#);
        assert_eq!(of(&row), [some("k"), some(r#"{"b" : 1,  "a":1.0}"#), json, None, None, None]);
        let row = emitted(&mut conn, "SELECT oncebox_emit('t', NULL, NULL)").await.unwrap();
        assert_eq!(of(&row), [None, None, some("{}"), None, None, None]);
        let row = emitted(&mut conn, r"SELECT oncebox_emit_bytes('t', 'k', 'x')").await.unwrap();
        assert_eq!(of(&row)[1..3], [some("x"), some("{}")]);

        let mut tx = conn.begin().await.unwrap();
        sqlx::raw_sql(
            "SET LOCAL oncebox.consumer = 'stock'; SET LOCAL oncebox.tenant = 'acme'; \
             SET LOCAL oncebox.causation_id = 'm-1'; SET LOCAL oncebox.traceparent = '00-1-2-01'; \
             SET LOCAL oncebox.correlation_id = 'case-1'",
        )
        .execute(&mut *tx)
        .await
        .unwrap();
        let call = r#"SELECT oncebox_emit('t', 'k', '1', ' { "x": "ü" } ')"#;
        let row = emitted(&mut tx, call).await.unwrap();
        let headers = some(
            r#"{"correlation-id":"case-1","traceparent":"00-1-2-01","content-type":"application/json","x": "ü"}"#,
        );
        assert_eq!(of(&row), [some("k"), some("1"), headers, some("stock"), some("acme"), some("m-1")]);
        let call =
            r#"SELECT oncebox_emit('t', 'k', '1', '[["traceparent", "mine"], ["correlation-id", "x"], ["content-type", "x"]]')"#;
        let row = emitted(&mut tx, call).await.unwrap();
        assert_eq!(
            of(&row)[2],
            some(r#"[["traceparent", "mine"], ["correlation-id", "x"], ["content-type", "x"]]"#)
        );
        tx.commit().await.unwrap();

        let row = emitted(&mut conn, "SELECT oncebox_emit('t', 'k', '1', '[]')").await.unwrap();
        let headers = some(r#"[["content-type", "application/json"]]"#);
        assert_eq!(of(&row)[2..], [headers, None, None, None], "the settings are gone");

        let relay = HandRelay::start(&store).await;
        let events = relay.next("t").await;
        assert_eq!(events.len(), 6);
        assert_eq!(events[3].headers.last("x"), Some("ü".as_bytes()));
        assert_eq!(events[3].causation_id.as_deref(), Some("m-1"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_delay_events() {
    with_store(|store, url| async move {
        let mut conn = PgConnection::connect(&url).await.unwrap();
        for call in [
            "SELECT oncebox_emit('t', 'a', '{}', deliver_at => '2999-01-01T00:00:00Z')",
            "SELECT oncebox_emit('t', 'b', '{}', '{\"x\": \"y\"}', now() + interval '1 hour')",
            "SELECT oncebox_emit_bytes('t', 'c', 'x', deliver_at => now() + interval '1 hour')",
            "SELECT oncebox_emit('t', 'd', NULL, deliver_at => '2026-01-02T03:04:05.678Z')",
            "SELECT oncebox_emit('t', 'e', '{}', deliver_at => NULL)",
        ] {
            emitted(&mut conn, call).await.unwrap();
        }
        let entries = store.events(&every()).await.unwrap();
        let states: Vec<EventState> = entries.iter().map(|entry| entry.state).collect();
        let delayed = EventState::Delayed;
        assert_eq!(states, [delayed, delayed, delayed, EventState::Pending, EventState::Pending]);
        let times: Vec<_> = entries.iter().map(|entry| entry.event.deliver_at_ms).collect();
        assert_eq!((times[3], times[4]), (Some(1_767_323_045_678), None));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_refuse_what_is_no_event() {
    with_store(|store, url| async move {
        let mut conn = PgConnection::connect(&url).await.unwrap();
        for (call, why) in [
            ("SELECT oncebox_emit('a/b', 'k', '{}')", "'a/b' is not a topic"),
            ("SELECT oncebox_emit(NULL, 'k', '{}')", "NULL is not a topic"),
            ("SELECT oncebox_emit('', 'k', '{}')", "'' is not a topic"),
            ("SELECT oncebox_emit('..', 'k', '{}')", "'..' is not a topic"),
            ("SELECT oncebox_emit(repeat('t', 250), 'k', '{}')", "is not a topic"),
            (
                "SELECT oncebox_emit('t', repeat('k', 65537), '{}')",
                "the key of an event to t has 65537 bytes",
            ),
            (
                "SELECT oncebox_emit('t', 'k', '{}', deliver_at => 'infinity')",
                "an event to t cannot be delivered at infinity",
            ),
            ("SELECT oncebox_emit('t', 'k', '{}', '7')", "the headers of an event to t must be"),
            ("SELECT oncebox_emit('t', 'k', '{}', NULL)", "the headers of an event to t must be"),
            ("SELECT oncebox_emit('t', 'k', '{}', '{\"a\": [1]}')", "the headers of an event to t must be"),
            ("SELECT oncebox_emit('t', 'k', '{}', '[[\"a\"]]')", "the headers of an event to t must be"),
            (
                "SELECT oncebox_emit('t', 'k', '{}', json_build_object('a', repeat('x', 262144)))",
                "the headers of an event to t have 262154 bytes",
            ),
            (
                "SELECT oncebox_emit_bytes('t', 'k', convert_to(repeat('x', 67108865), 'UTF8'))",
                "the payload of an event to t has 67108865 bytes",
            ),
        ] {
            let error = emitted(&mut conn, call).await.unwrap_err();
            let error = error.as_database_error().unwrap();
            assert_eq!(error.code().as_deref(), Some("22023"), "{call}: {error}");
            assert!(error.message().contains(why), "{call}: {error}");
        }
        assert_eq!(number(&store, "SELECT count(*) FROM oncebox_outbox").await, 0);
    })
    .await;
}
