//! What Kafka allows and few expect: tombstones, null keys, headers twice, bytes that are not text.

use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::topic::Odd;
use crate::support::world::World;

const STATEMENT: &str =
    "\"INSERT INTO odd (message_id, message_key, payload, headers) VALUES (:id, :key, :payload, :headers)\"";

async fn world(kind: Kind, payload: &str) -> World {
    let mut world = World::new(kind, 1).await;
    let column = match (kind, payload) {
        (Kind::Postgres, "bytes") => "BYTEA",
        (Kind::Mariadb | Kind::Sqlite, "bytes") => "BLOB",
        _ => "TEXT",
    };
    let headers = if kind == Kind::Postgres { "JSONB" } else { "TEXT" };
    let table =
        format!("CREATE TABLE odd (message_id TEXT, message_key TEXT, payload {column}, headers {headers})");
    world.db.execute(&table).await;
    let inbox = Inbox::new(&world.consumer, &world.topic.name, vec![STATEMENT.to_owned()]);
    world.config.inboxes = vec![inbox.set("payload", &format!("{payload:?}"))];
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_records_with_a_payload_of_bytes() {
    for kind in Kind::WITH_SQL {
        let world = world(kind, "bytes").await;
        let send = |id: &str, key: Option<&[u8]>, payload: Option<&[u8]>, more: &[(&str, Option<&[u8]>)]| {
            let headers = [&[("event_id", Some(id.as_bytes()))], more].concat();
            world.topic.send_odd(&Odd { partition: 0, key, payload, headers: &headers, ..Odd::default() });
        };
        send("tombstone", Some(b"k"), None, &[]);
        send("no-key", None, Some(b"\x00\xff\xfe"), &[]);
        send("nothing", None, None, &[]);
        send("empty", Some(b""), Some(b""), &[]);
        send(
            "first",
            Some(b"k"),
            Some(b"p"),
            &[("event_id", Some(b"second")), ("twice", Some(b"1")), ("twice", Some(b"2"))],
        );
        send(
            "headers",
            Some(b"k"),
            Some(b"p"),
            &[("bytes", Some(b"\xff\x00")), ("null", None), ("", Some(b"no name"))],
        );
        send("key-of-bytes", Some(b"\xff\xfe"), Some(b"p"), &[]);
        let id_of_bytes = [("event_id", Some(b"\xff".as_slice()))];
        world.topic.send_odd(&Odd { key: Some(b"k"), headers: &id_of_bytes, ..Odd::default() });
        let null_id = [("event_id", None)];
        world.topic.send_odd(&Odd { key: Some(b"k"), headers: &null_id, ..Odd::default() });
        send("last", Some("schlüssel".as_bytes()), Some(b"p"), &[]);

        let daemon = world.start();
        world.caught_up().await;
        let (hex, headers) = match kind {
            Kind::Postgres => (
                "encode(payload, 'hex')",
                "(headers->'twice')::text, (headers->'bytes')::text, (headers->'null')::text",
            ),
            Kind::Mariadb => (
                "lower(hex(payload))",
                "JSON_EXTRACT(headers,'$.twice'), JSON_EXTRACT(headers,'$.bytes'), JSON_EXTRACT(headers,'$.null')",
            ),
            _ => ("lower(hex(payload))", "headers->'twice', headers->'bytes', headers->'null'"),
        };
        let seen = world
            .db
            .texts(&format!(
                "SELECT message_id || ' ' || COALESCE('key:' || message_key, 'no key') || ' ' || \
                 CASE WHEN payload IS NULL THEN 'no payload' ELSE 'payload:' || {hex} END FROM odd ORDER BY message_id"
            ))
            .await;
        let expected = [
            "empty key: payload:",
            "headers key:k payload:70",
            "last key:schlüssel payload:70",
            "no-key no key payload:00fffe",
            "nothing no key no payload",
            "second key:k payload:70",
            "tombstone key:k no payload",
        ];
        assert_eq!(seen, expected, "{kind:?}");
        let header = |id: &str, nth: usize| {
            let column = headers.split(", ").nth(nth).expect("a column").to_owned();
            let sql = format!("SELECT COALESCE({column}, 'missing') FROM odd WHERE message_id = '{id}'");
            let world = &world;
            async move { world.db.texts(&sql).await.remove(0) }
        };
        assert_eq!(header("second", 0).await, "\"2\"", "the last one of a name counts");
        assert_eq!(header("headers", 2).await, "null");
        assert!(header("headers", 1).await.contains("base64"), "bytes that are not text are still there");
        assert_eq!(header("tombstone", 1).await, "missing");

        let errors = world.dead("error").await;
        assert_eq!(errors.len(), 3, "{errors:?}");
        for (error, words) in errors.iter().zip(["the key is not UTF-8", "not UTF-8", "no value"]) {
            assert!(error.contains(words), "{error} should say {words}");
        }
        assert_eq!(world.dead("message_id").await, ["key-of-bytes", "", ""]);
        // Kept as they came.
        let letter = world.letter(2);
        assert_eq!(letter["headers"], serde_json::json!([{"name": "event_id", "value": null}]));
        assert_eq!(letter["payload"], serde_json::Value::Null);
        daemon.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_records_with_a_payload_of_text() {
    for kind in Kind::WITH_SQL {
        let world = world(kind, "text").await;
        for (id, payload) in [
            ("text", Some("grüße \u{1f600} 'quoted' \\ $1 :id".as_bytes())),
            ("bytes", Some(b"\xff\xfe".as_slice())),
            ("nul", Some(b"a\0b")),
            ("tombstone", None),
            ("empty", Some(b"")),
        ] {
            let headers = [("event_id", Some(id.as_bytes()))];
            world.topic.send_odd(&Odd {
                partition: 0,
                key: None,
                payload,
                headers: &headers,
                ..Odd::default()
            });
        }
        let daemon = world.start();
        world.caught_up().await;
        let seen = world
            .db
            .texts("SELECT message_id || '=' || COALESCE(payload, 'NULL') FROM odd ORDER BY message_id")
            .await;
        // Only MariaDB has texts with a NUL in them.
        let holds_nul = kind == Kind::Mariadb;
        let text = "text=grüße \u{1f600} 'quoted' \\ $1 :id";
        let expected = ["empty=", "nul=a\0b", text, "tombstone=NULL"];
        let expected = expected.into_iter().filter(|seen| holds_nul || !seen.contains('\0'));
        assert_eq!(seen, expected.collect::<Vec<_>>(), "{kind:?}");
        let dead = if holds_nul { &["bytes"][..] } else { &["bytes", "nul"] };
        assert_eq!(world.dead("message_id").await, dead, "{kind:?}");
        let errors = world.dead("error").await;
        assert!(errors[0].contains("not UTF-8"), "{errors:?}");
        assert!(holds_nul || errors[1].contains("NUL"), "{errors:?}");
        daemon.stop();
    }
}
