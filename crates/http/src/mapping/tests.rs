#![allow(clippy::unwrap_used)]

use oncebox_core::inbox::Identity;
use proptest::prelude::*;

use super::*;

fn mapping() -> Mapping {
    Mapping { topic: "/in/{tenant}/orders".into(), key: None, proofs: Vec::new(), max_batch: 3 }
}

fn map(mapping: &Mapping, headers: &[(&str, &str)], body: &str) -> Result<Vec<Record>, Malformed> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    let parameters = [("tenant", "acme")];
    let body = Bytes::copy_from_slice(body.as_bytes());
    mapping.records(Arrival { headers: &map, parameters: &parameters, body, at_ms: 1_700_000_000_123 })
}

fn one(headers: &[(&str, &str)], body: &str) -> Record {
    let mut records = map(&mapping(), headers, body).unwrap();
    assert_eq!(records.len(), 1);
    records.pop().unwrap()
}

fn select(selector: &str, record: &Record) -> Result<String, String> {
    selector.parse::<Selector>().unwrap().select(record).map_err(|e| e.to_string())
}

#[test]
fn a_request_is_a_record() {
    let record = one(&[("Content-Type", "application/json"), ("X-Color", "blue"), ("X-Color", "red")], "{}");
    assert_eq!(&*record.topic, "/in/{tenant}/orders");
    assert_eq!((record.partition, record.offset, record.timestamp_ms), (0, 0, Some(1_700_000_000_123)));
    assert_eq!((record.payload.as_deref(), record.key.as_deref()), (Some(&b"{}"[..]), None));
    let headers: Vec<_> = record.headers.iter().collect();
    assert_eq!(
        headers,
        [
            ("content-type", Some(&b"application/json"[..])),
            ("x-color", Some(b"blue")),
            ("x-color", Some(b"red")),
            ("path:tenant", Some(b"acme")),
        ]
    );
    assert_eq!(select("header:x-color", &record), Ok("red".into()));
}

#[test]
fn what_is_not_about_the_message_is_not_kept() {
    let mut mapping = mapping();
    mapping.proofs.push(HeaderName::from_static("x-acme-signature"));
    let left_out = [
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Length",
        "Expect",
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "Webhook-Signature",
        "Stripe-Signature",
        "X-Hub-Signature",
        "X-Hub-Signature-256",
        "X-Shopify-Hmac-Sha256",
        "X-Slack-Signature",
        "X-Acme-Signature",
        "X-Api-Key",
        "ce_id",
    ];
    let mut headers: Vec<(&str, &str)> = left_out.iter().map(|name| (*name, "canary")).collect();
    headers.extend([("connection", "close, X-Next-Hop"), ("x-next-hop", "canary"), ("webhook-id", "kept")]);
    let record = map(&mapping, &headers, "{}").unwrap().pop().unwrap();
    let names: Vec<&str> = record.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["webhook-id", "path:tenant"]);
    assert!(!format!("{record:?}").contains("canary"), "{record:?}");
}

#[test]
fn the_parameters_of_the_path_are_the_sources_own() {
    let record = one(&[("tenant", "forged"), ("path-tenant", "forged")], "{}");
    assert_eq!(select("path:tenant", &record), Ok("acme".into()));
    assert!("path:tenant".parse::<HeaderName>().is_err(), "no header of a request has this name");
    let identity = Identity::new(Selector::Header("tenant".into()), Some(Selector::Path("tenant".into())));
    let message = identity.identify(record).unwrap();
    assert_eq!((message.id().as_str(), message.tenant().as_str()), ("forged", "acme"));
}

#[test]
fn a_tombstone_is_told_from_an_empty_payload() {
    assert_eq!(one(&[], "").payload, None);
    assert_eq!(one(&[("content-type", "application/octet-stream")], "").payload, Some(Bytes::new()));
}

#[test]
fn the_idempotency_key_is_the_same_with_quotes_and_without() {
    for value in [r#""k-1""#, "k-1", r#""k-1";v=2"#] {
        assert_eq!(
            select("header:idempotency-key", &one(&[("Idempotency-Key", value)], "")),
            Ok("k-1".into())
        );
    }
    let twice = map(&mapping(), &[("Idempotency-Key", "a"), ("Idempotency-Key", "a")], "");
    assert_eq!(twice, Err(Malformed::KeyRepeated));
    assert_eq!(map(&mapping(), &[("Idempotency-Key", "\"a")], ""), Err(Malformed::KeyNotAString));
}

#[test]
fn the_key_is_where_its_selector_says_or_nowhere() {
    let mut mapping = mapping();
    mapping.key = Some(Selector::Json("/sku".into()));
    for (body, key) in
        [(r#"{"sku": "bolt"}"#, Some(&b"bolt"[..])), (r#"{"sku": null}"#, None), ("no JSON", None)]
    {
        assert_eq!(map(&mapping, &[], body).unwrap()[0].key.as_deref(), key, "{body}");
    }
    mapping.key = Some(Selector::Header("oncebox-key".into()));
    assert_eq!(map(&mapping, &[("Oncebox-Key", "k")], "").unwrap()[0].key.as_deref(), Some(&b"k"[..]));
}

#[test]
fn cloud_events_in_binary_mode_are_decoded() {
    let event = |id: &str, source: &str| one(&[("ce-id", id), ("ce-source", source)], "{}");
    for (id, source, text) in [
        ("A-1", "/shop", "/shop A-1"),
        ("A%201%25", "/shop", "/shop A 1%"),
        ("Euro%20%E2%82%AC%20%f0%9f%98%80", "/s", "/s Euro € 😀"),
        (r#""A 1\"%25""#, "/s", "/s A 1\"%"),
        ("100%", "/s", "/s 100%"),
        ("%2541", "/s", "/s %41"),
    ] {
        assert_eq!(select("cloudevents", &event(id, source)), Ok(text.into()), "{id}");
    }
    // An overlong space.
    let found = select("cloudevents", &event("%C0%A0", "/s"));
    assert_eq!(found, Err("the header `ce-id` is not UTF-8".into()));
}

#[test]
fn cloud_events_in_structured_mode_are_one_message() {
    let json = r#"{"specversion": "1.0", "id": "7", "source": "urn:shop", "type": "t", "data": {}}"#;
    let record = one(&[("content-type", "application/cloudevents+json; charset=UTF-8")], json);
    assert_eq!(select("cloudevents", &record), Ok("urn:shop 7".into()));
    assert_eq!(record.payload.as_deref(), Some(json.as_bytes()));
}

#[test]
fn a_batch_is_a_message_for_each_event_as_it_was_written() {
    let first = r#"{"id": "1", "source": "/s", "data": {"price":  1.10}}"#;
    let second = r#"{"id":"2","source":"/s"}"#;
    let batch = |body: &str| {
        let headers = [("content-type", "Application/CloudEvents-Batch+JSON; charset=utf-8"), ("x-a", "b")];
        map(&mapping(), &headers, body)
    };
    let records = batch(&format!(" [ {first} ,\n{second}\t] ")).unwrap();
    assert_eq!(records[0].payload.as_deref(), Some(first.as_bytes()));
    assert_eq!(records[1].payload.as_deref(), Some(second.as_bytes()));
    for (record, id) in records.iter().zip(["/s 1", "/s 2"]) {
        assert_eq!(select("cloudevents", record), Ok(id.into()));
        assert_eq!(select("header:x-a", record), Ok("b".into()));
        assert_eq!(select("path:tenant", record), Ok("acme".into()));
    }
    assert_eq!(batch("[]"), Ok(vec![]));
    assert_eq!(batch("[{},{},{}]").unwrap().len(), 3);
    for too_long in ["[{},{},{},{}]", "[{},{},{},{},{},{}]", "[{},{},{},{}"] {
        assert_eq!(batch(too_long), Err(Malformed::BatchTooLong(3)), "{too_long}");
    }
    for odd in ["", "{}", "[", "[{}", "[{},]", "[1]", "[null]", "[{}] x", "[{\"a\":}]", "\"[]\""] {
        assert!(matches!(batch(odd), Err(Malformed::BatchNotJson(_))), "{odd}");
    }
    let other = map(&mapping(), &[("content-type", "application/cloudevents-batch+avro")], "");
    assert_eq!(other, Err(Malformed::BatchFormat));
}

proptest! {
    /// Whatever the body of a batch is, it is taken apart without loss or refused.
    #[test]
    fn batches_are_taken_apart_without_loss(body in r#"[\[\]{}, "a0]{0,24}"#) {
        let headers = [("content-type", "application/cloudevents-batch+json")];
        let parsed: Result<Vec<serde_json::Map<String, serde_json::Value>>, _> = serde_json::from_str(&body);
        match (map(&mapping(), &headers, &body), parsed) {
            (Ok(records), Ok(parsed)) => {
                let events = records.iter().map(|record| record.payload.as_deref().unwrap());
                let events: Vec<serde_json::Map<String, serde_json::Value>> =
                    events.map(|event| serde_json::from_slice(event).unwrap()).collect();
                prop_assert_eq!(events, parsed);
            }
            (Err(Malformed::BatchTooLong(_)), _) | (Err(Malformed::BatchNotJson(_)), Err(_)) => {}
            (mapped, parsed) => prop_assert!(false, "{:?} but {:?}", mapped, parsed),
        }
    }
}
