//! Events are written with the transaction, by oncebox or by anybody.

use std::time::SystemTime;

use oncebox_core::message::Headers;
use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{EventFilter, EventState, Outbox, OutboxAdmin};
use sqlx::{Connection, Row};
use uuid::{Uuid, Variant};

use crate::file::{BOUNDS, File, TestResult, all_shards};

#[tokio::test]
async fn an_event_is_there_after_the_commit_and_never_without() -> TestResult {
    let file = File::new().await?;
    let mut conn = file.beside().await?;
    let mut tx = conn.begin().await?;
    let id = tx.emit(Event::to("stock").key("A-1").json("x")?.header("a", "b")).await?;
    assert!(file.ready().await?.is_empty() && file.next("stock").await?.is_empty(), "not committed");
    tx.commit().await?;
    assert_eq!(file.ready().await?, ["stock"]);
    let events = file.store.next_events("stock", &all_shards(), BOUNDS).await?;
    let [event] = &events[..] else { return Err(format!("{events:?}").into()) };
    assert_eq!((event.id, event.key.as_deref(), event.attempts), (id, Some(b"A-1".as_slice()), 0));
    assert_eq!(event.payload.as_deref(), Some(br#""x""#.as_slice()));
    assert_eq!(event.headers.last("a"), Some(b"b".as_slice()));
    assert!(now_ms().abs_diff(event.created_at_ms) < 60_000, "{}", event.created_at_ms);

    let mut tx = conn.begin().await?;
    tx.emit(Event::to("stock").key("A-2")).await?;
    tx.rollback().await?;
    assert_eq!(file.number("SELECT count(*) FROM oncebox_outbox").await?, 1);
    Ok(())
}

#[tokio::test]
async fn anybody_can_delay_an_event() -> TestResult {
    let file = File::new().await?;
    let insert = "INSERT INTO oncebox_outbox (topic, key, deliver_at)";
    file.run(&format!(
        "{insert} VALUES ('t', 'a', '2999-01-01 00:00:00'), ('t', 'b', datetime('now', '+1 hour'))"
    ))
    .await?;
    file.run(&format!("{insert} VALUES ('t', 'c', '2026-01-02T03:04:05.678Z')")).await?;
    let entries = file.store.events(&EventFilter { limit: 9, ..EventFilter::default() }).await?;
    let states: Vec<EventState> = entries.iter().map(|entry| entry.state).collect();
    assert_eq!(states, [EventState::Delayed, EventState::Delayed, EventState::Pending]);
    assert_eq!(entries[2].event.deliver_at_ms, Some(1_767_323_045_678));
    for wrong in ["'tomorrow'", "''"] {
        let error = file.run(&format!("{insert} VALUES ('t', 'd', {wrong})")).await.unwrap_err().to_string();
        assert!(error.contains("deliver_at is a time"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn bytes_come_back_as_they_were() -> TestResult {
    let file = File::new().await?;
    let mut headers = Headers::new();
    headers.push("again", Some("1".into()));
    headers.push("again", Some(vec![0xff, 0].into()));
    let event = |key: Option<&[u8]>, payload: Option<&[u8]>| {
        let mut event = Event::to("t");
        if let Some(key) = key {
            event = event.key(key);
        }
        if let Some(payload) = payload {
            event = event.bytes(payload.to_vec());
        }
        event.header("again", "1").header("again", vec![0xff, 0])
    };
    let parts: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"a\0b"), Some(&[0xff, 0xfe])];
    let pairs: Vec<_> =
        parts.iter().flat_map(|key| parts.iter().map(move |payload| (*key, *payload))).collect();
    let events: Vec<Event> = pairs.iter().map(|(key, payload)| event(*key, *payload)).collect();
    file.beside().await?.emit_all(&events).await?;
    let stored = file.store.next_events("t", &all_shards(), BOUNDS).await?;
    let read: Vec<_> = stored.iter().map(|e| (e.key.as_deref(), e.payload.as_deref())).collect();
    assert_eq!(read, pairs);
    assert!(stored.iter().all(|event| event.headers == headers));
    assert!(stored.iter().zip(&events).all(|(stored, event)| stored.id == event.id()));
    Ok(())
}

#[tokio::test]
async fn many_and_large_events_keep_their_order() -> TestResult {
    let file = File::new().await?;
    let large = vec![7_u8; 3 * 1024 * 1024];
    let events: Vec<Event> = (0..2500)
        .map(|n| {
            let event = Event::to("t").key("k");
            if n % 800 == 1 { event.bytes(large.clone()) } else { event.bytes(n.to_string()) }
        })
        .collect();
    file.beside().await?.emit_all(&events).await?;
    let entries = file.store.events(&EventFilter { limit: 3000, ..EventFilter::default() }).await?;
    let ids: Vec<Uuid> = entries.iter().map(|entry| entry.event.id).collect();
    assert_eq!(ids, events.iter().map(Event::id).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn a_plain_insert_makes_a_proper_event() -> TestResult {
    let file = File::new().await?;
    file.run(
        "INSERT INTO oncebox_outbox (topic, key, payload) VALUES ('stock.changed', 'A-1', json_object('qty', 2));
         INSERT INTO oncebox_outbox (topic, key, payload) VALUES ('stock.changed', x'412d31', x'ff');
         INSERT INTO oncebox_outbox (topic, key, headers)
            VALUES ('stock.changed', 42, '{\"a\": 1, \"b\": true, \"c\": null, \"d\": \"e\"}');
         INSERT INTO oncebox_outbox (topic) VALUES ('stock.changed');",
    )
    .await?;
    let events = file.store.next_events("stock.changed", &all_shards(), BOUNDS).await?;
    let keys: Vec<_> = events.iter().map(|event| event.key.as_deref()).collect();
    assert_eq!(keys, [Some(b"A-1".as_slice()), Some(b"A-1"), Some(b"42"), None]);
    assert_eq!(events[0].payload.as_deref(), Some(br#"{"qty":2}"#.as_slice()));
    assert_eq!(events[1].payload.as_deref(), Some([0xff].as_slice()));
    assert_eq!(events[3].payload, None);
    let headers: Vec<_> = events[2].headers.iter().collect();
    let expected = [("a", Some(b"1".as_slice())), ("b", Some(b"true")), ("c", None), ("d", Some(b"e"))];
    assert_eq!(headers, expected);
    assert_eq!(file.number("SELECT count(DISTINCT shard) FROM oncebox_outbox WHERE seq < 3").await?, 1);
    for event in &events {
        assert_eq!(
            (event.id.get_version_num(), event.id.get_variant()),
            (7, Variant::RFC4122),
            "{}",
            event.id
        );
        let (seconds, nanos) = event.id.get_timestamp().ok_or("no time")?.to_unix();
        let id_ms = i64::try_from(seconds * 1000)? + i64::from(nanos / 1_000_000);
        assert!(id_ms.abs_diff(event.created_at_ms) <= 1, "{id_ms} {}", event.created_at_ms);
    }
    Ok(())
}

#[tokio::test]
async fn ids_are_random_and_ascend_with_time() -> TestResult {
    let file = File::new().await?;
    let insert = "INSERT INTO oncebox_outbox (topic)
        WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000) SELECT 't' FROM n";
    file.run(insert).await?;
    assert_eq!(file.number("SELECT count(DISTINCT id) FROM oncebox_outbox").await?, 5000);
    // Every random bit is sometimes one and sometimes zero.
    let ids = sqlx::query("SELECT id FROM oncebox_outbox").fetch_all(&mut file.beside().await?).await?;
    let (mut ones, mut zeros) = (0_u128, 0_u128);
    for row in &ids {
        let id: Uuid = row.try_get::<String, _>(0)?.parse()?;
        ones |= id.as_u128();
        zeros |= !id.as_u128();
    }
    let random = 0x0fff_3fff_ffff_ffff_ffff_u128;
    assert_eq!((ones & random, zeros & random), (random, random));
    Ok(())
}

#[tokio::test]
async fn a_wrong_plain_insert_says_what_is_wrong() -> TestResult {
    let file = File::new().await?;
    let long = "x".repeat(250);
    let topic = "a topic has 1 to 249 letters, digits, dots, underscores or dashes";
    let id = "an id is a UUID in lower case";
    let headers = "headers are a JSON object, or an array of pairs";
    for (columns, values, reason) in [
        ("topic", "''", topic),
        ("topic", "'a b'", topic),
        ("topic", "'ü'", topic),
        ("topic", "'..'", topic),
        ("topic", "'a' || char(0)", topic),
        ("topic", "x'61'", topic),
        ("topic", &format!("'{long}'"), topic),
        ("topic", "NULL", "oncebox_outbox.topic"),
        ("topic, id", "'t', 'mine'", id),
        ("topic, id", "'t', '019A0000-0000-7000-8000-000000000000'", id),
        ("topic, id", "'t', '019a0000-0000-7000-8000-00000000000-'", id),
        ("topic, headers", "'t', 'a=b'", headers),
        ("topic, headers", "'t', '1'", headers),
        ("topic, headers", "'t', NULL", "oncebox_outbox.headers"),
    ] {
        let sql = format!("INSERT INTO oncebox_outbox ({columns}) VALUES ({values})");
        let Err(error) = file.run(&sql).await else { return Err(format!("accepted: {sql}").into()) };
        assert!(error.to_string().contains(reason), "{sql}: {error}");
    }
    let longest = format!("INSERT INTO oncebox_outbox (topic, key) VALUES ('{}', '')", "x".repeat(249));
    Ok(file.run(&longest).await?)
}

#[tokio::test]
async fn keys_spread_over_the_shards() -> TestResult {
    let file = File::new().await?;
    let insert = |key: &str| {
        format!(
            "DELETE FROM oncebox_outbox; INSERT INTO oncebox_outbox (topic, key)
             WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1600) SELECT 't', {key} FROM n"
        )
    };
    for key in [
        "n",
        "'customer-' || n",
        "hex(randomblob(16))",
        "lower(hex(randomblob(16)))",
        "randomblob(16)",
        "NULL",
    ] {
        file.run(&insert(key)).await?;
        let fewest = "SELECT min(n) FROM (SELECT count(o.seq) AS n FROM oncebox_shard s
            LEFT JOIN oncebox_outbox o ON o.shard = s.shard GROUP BY s.shard)";
        assert!(file.number(fewest).await? >= 50, "{key}");
    }
    Ok(())
}

#[tokio::test]
async fn an_event_that_is_none_is_refused() -> TestResult {
    let file = File::new().await?;
    let Err(error) = file.beside().await?.emit(Event::to("no topic")).await else {
        return Err("accepted".into());
    };
    assert!(error.to_string().contains("\"no topic\" is not a topic"), "{error}");
    Ok(())
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_millis() as i64)
}
