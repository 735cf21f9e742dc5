#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use proptest::prelude::*;

use super::pointer::Leaf;
use super::*;
use crate::message::Headers;
use crate::names::{MessageId, Tenant};

fn record() -> Record {
    Record::at("orders", 3, 42)
}

fn with_payload(json: &str) -> Record {
    Record { payload: Some(Bytes::copy_from_slice(json.as_bytes())), ..record() }
}

fn with_headers(headers: &[(&str, Option<&[u8]>)]) -> Record {
    let headers = headers.iter().map(|(n, v)| (*n, v.map(Bytes::copy_from_slice)));
    Record { headers: Headers::from_iter(headers), ..record() }
}

fn select(selector: &str, record: &Record) -> Result<String, String> {
    selector.parse::<Selector>().unwrap().select(record).map_err(|e| e.to_string())
}

#[test]
fn selectors_read_back_as_they_are_written() {
    for text in [
        "key",
        "header:event_id",
        "header:a:b",
        "property:message_id",
        "json:/a~1b/0",
        "json:/",
        "path:tenant",
        "cloudevents",
        "coordinates",
    ] {
        assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
    }
}

#[test]
fn a_wrong_selector_is_told_what_is_allowed() {
    for (text, part) in [
        ("", "`` is not a selector"),
        ("random", "`random` is not a selector"),
        ("Key", "`Key` is not a selector"),
        ("header", "needs a name"),
        ("header:", "name is empty"),
        ("property", "needs a name"),
        ("property:", "name is empty"),
        ("json", "needs a pointer"),
        ("json:", "begins with `/`"),
        ("json:id", "begins with `/`"),
        ("json:/a~2", "`~0`"),
        ("json:/a~", "`~0`"),
        ("path", "needs the name"),
        ("path:", "letters, digits and underscores"),
        ("path:/x", "letters, digits and underscores"),
        ("query:x", "is not a selector"),
    ] {
        let error = text.parse::<Selector>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(
            error.contains(
                "key, header:NAME, property:NAME, json:/POINTER, path:NAME, cloudevents and coordinates"
            ),
            "{error}"
        );
    }
}

#[test]
fn key_must_be_there_and_be_text() {
    let with_key = |key: &[u8]| Record { key: Some(Bytes::copy_from_slice(key)), ..record() };
    assert_eq!(select("key", &with_key(b"k-1")), Ok("k-1".into()));
    assert_eq!(select("key", &record()), Err("the key is absent".into()));
    assert_eq!(select("key", &with_key(&[0xff])), Err("the key is not UTF-8".into()));
}

#[test]
fn the_last_header_counts() {
    let twice = with_headers(&[("id", Some(b"old")), ("x", Some(b"y")), ("id", Some(b"new"))]);
    assert_eq!(select("header:id", &twice), Ok("new".into()));
    assert_eq!(select("header:ID", &twice), Err("no header `ID`".into()));
    // A null that came last is not papered over with an older value.
    let null = with_headers(&[("id", Some(b"old")), ("id", None)]);
    assert_eq!(select("header:id", &null), Err("the header `id` has no value".into()));
    let binary = with_headers(&[("id", Some(&[0xc3]))]);
    assert_eq!(select("header:id", &binary), Err("the header `id` is not UTF-8".into()));
}

#[test]
fn a_property_is_not_a_header_of_the_same_name() {
    let both = with_headers(&[("message_id", Some(b"header")), ("property:message_id", Some(b"property"))]);
    assert_eq!(select("property:message_id", &both), Ok("property".into()));
    assert_eq!(select("property:type", &both), Err("no property `type`".into()));
    let header = with_headers(&[("message_id", Some(b"header"))]);
    assert_eq!(select("property:message_id", &header), Err("no property `message_id`".into()));
}

#[test]
fn json_takes_strings_and_integers() {
    let json = r#"{"s": "a\"b", "n": 12, "neg": -3, "max": 18446744073709551615, "a": [{"id": "x"}, 7],
                   "a/b": {"~": "odd"}, "": {"": "empty"}, "big": 18446744073709551616, "f": 1.0, "e": 1e3,
                   "o": {}, "t": true, "z": null}"#;
    let record = with_payload(json);
    for (pointer, text) in [
        ("/s", "a\"b"),
        ("/n", "12"),
        ("/neg", "-3"),
        ("/max", "18446744073709551615"),
        ("/a/0/id", "x"),
        ("/a/1", "7"),
        ("/a~1b/~0", "odd"),
        ("//", "empty"),
    ] {
        assert_eq!(select(&format!("json:{pointer}"), &record), Ok(text.into()));
    }
    for (pointer, found) in [
        ("/o", "an object"),
        ("/a", "an array"),
        ("/t", "a boolean"),
        ("/z", "null"),
        ("/f", "a number, but no 64-bit integer"),
        ("/e", "a number, but no 64-bit integer"),
        ("/big", "a number, but no 64-bit integer"),
    ] {
        let wanted = format!("the value at {pointer} is {found}; an id must be a string or an integer");
        assert_eq!(select(&format!("json:{pointer}"), &record), Err(wanted));
    }
    for pointer in ["/missing", "/a/2", "/a/01", "/a/+1", "/a/-", "/s/x", "/n/0"] {
        let wanted = format!("the payload has nothing at {pointer}");
        assert_eq!(select(&format!("json:{pointer}"), &record), Err(wanted));
    }
}

#[test]
fn a_repeated_name_counts_as_its_last_value() {
    assert_eq!(select("json:/a", &with_payload(r#"{"a": 1, "a": 2}"#)), Ok("2".into()));
    assert_eq!(
        select("json:/a/b", &with_payload(r#"{"a": {"b": 1}, "a": {}}"#)),
        Err("the payload has nothing at /a/b".into())
    );
}

#[test]
fn a_payload_that_is_no_json_is_an_error() {
    let absent = select("json:/a", &record()).unwrap_err();
    assert!(absent.contains("payload is absent"), "{absent}");
    for bad in ["", "{", r#"{"a": 1"#, r#"{"a": 1} x"#, "\u{feff}{}", r#"{"a": "\ud800"}"#] {
        let error = select("json:/a", &with_payload(bad)).unwrap_err();
        assert!(error.contains("the payload is not JSON"), "{bad}: {error}");
    }
}

#[test]
fn cloud_events_in_binary_mode() {
    let event = with_headers(&[
        ("content-type", Some(b"application/json")),
        ("ce_id", Some(b"A 1")),
        ("ce_source", Some(b"/shop")),
    ]);
    assert_eq!(select("cloudevents", &event), Ok("/shop A 1".into()));
    for (headers, error) in [
        (&[("ce_source", Some(b"/shop".as_slice()))] as &[_], "no header `ce_id`"),
        (&[("ce_id", Some(b"1".as_slice()))], "no header `ce_source`"),
        (
            &[("ce_id", Some(b"".as_slice())), ("ce_source", Some(b"/s"))],
            "the `id` of the CloudEvent is empty",
        ),
        (
            &[("ce_id", Some(b"1".as_slice())), ("ce_source", Some(b""))],
            "the `source` of the CloudEvent is empty",
        ),
        (&[("ce_id", Some(b"1".as_slice())), ("ce_source", Some(b"/s x"))], "contains a space"),
    ] {
        let found = select("cloudevents", &with_headers(headers)).unwrap_err();
        assert!(found.contains(error), "{found}");
    }
}

#[test]
fn cloud_events_in_binary_mode_over_http() {
    let event = with_headers(&[("ce-id", Some(b"A 1")), ("ce-source", Some(b"/shop"))]);
    assert_eq!(select("cloudevents", &event), Ok("/shop A 1".into()));
    let half = with_headers(&[("ce-id", Some(b"A 1"))]);
    assert_eq!(select("cloudevents", &half), Err("no header `ce-source`".into()));
    // One binding or the other, and never half of each: then a header more could make another message of it.
    let mixed = with_headers(&[("ce-id", Some(b"1")), ("ce-source", Some(b"/http")), ("ce_id", Some(b"2"))]);
    assert_eq!(select("cloudevents", &mixed), Err("no header `ce_source`".into()));
}

#[test]
fn the_parameter_of_a_path() {
    let record = with_headers(&[("tenant", Some(b"forged")), ("path:tenant", Some(b"acme"))]);
    assert_eq!(select("path:tenant", &record), Ok("acme".into()));
    assert_eq!(select("path:shop", &record), Err("no parameter `shop` in the path of the request".into()));
}

#[test]
fn cloud_events_in_structured_mode() {
    let structured = |json: &str| Record {
        payload: Some(Bytes::copy_from_slice(json.as_bytes())),
        ..with_headers(&[("content-type", Some(b"Application/CloudEvents+JSON; charset=UTF-8"))])
    };
    let event =
        structured(r#"{"specversion": "1.0", "id": "7", "source": "urn:shop", "data": {"id": "no"}}"#);
    assert_eq!(select("cloudevents", &event), Ok("urn:shop 7".into()));
    assert_eq!(
        select("cloudevents", &structured(r#"{"id": "7"}"#)),
        Err("the payload has nothing at /source".into())
    );
}

fn all(parts: &[&str]) -> Result<Selector, PartsError> {
    Selector::all(parts.iter().map(|part| part.parse().unwrap()))
}

#[test]
fn several_values_make_one_id() {
    let mut record =
        with_payload(r#"{"eventCode": "REFUND", "item": {"psp": 85}, "odd": "a|b~c", "none": ""}"#);
    record.key = Some("k-1".into());
    for (parts, id) in [
        (&["json:/eventCode", "json:/item/psp"] as &[_], "REFUND|85"),
        (&["json:/item/psp", "json:/eventCode"], "85|REFUND"),
        (&["json:/item/psp", "key", "json:/eventCode", "coordinates"], "85|k-1|REFUND|orders/3/42"),
        (&["key", "coordinates"], "k-1|orders/3/42"),
        (&["json:/odd", "key"], "a~1b~0c|k-1"),
    ] {
        assert_eq!(all(parts).unwrap().select(&record), Ok(id.to_owned()));
    }
    for (parts, error) in [
        (["json:/eventCode", "json:/pspReference"], "the payload has nothing at /pspReference"),
        (["json:/item", "key"], "the value at /item is an object"),
        (["json:/none", "key"], "the part json:/none is empty"),
        (["json:/eventCode", "header:h"], "no header `h`"),
    ] {
        let found = all(&parts).unwrap().select(&record).unwrap_err().to_string();
        assert!(found.contains(error), "{found}");
    }
}

#[test]
fn a_list_of_parts_that_makes_no_sense_is_refused() {
    let nine: Vec<String> = (0..9).map(|nth| format!("header:h{nth}")).collect();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    assert!(all(&nine[..8]).is_ok());
    assert_eq!(all(&nine), Err(PartsError::TooMany));
    assert_eq!(all(&[]), Err(PartsError::TooFew));
    assert_eq!(all(&["key"]), Err(PartsError::TooFew));
    assert_eq!(all(&["key", "cloudevents", "key"]), Err(PartsError::Twice(Selector::Key)));
    assert_eq!(Selector::all([all(&nine[..2]).unwrap(), Selector::Key]), Err(PartsError::Nested));
    assert_eq!(all(&["key", "json:/a"]).unwrap().to_string(), "[key, json:/a]");
}

#[test]
fn an_id_of_parts_and_a_tenant_in_the_payload_are_read_together() {
    let json = r#"{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "tenant": "t"}"#;
    let tenant = Some(Selector::Json("/tenant".into()));
    for (names, id) in [("ab", "1|2"), ("bac", "2|1|3"), ("abcdefgh", "1|2|3|4|5|6|7|8")] {
        let parts = names.chars().map(|name| Selector::Json(format!("/{name}")));
        let identity = Identity::new(Selector::all(parts).unwrap(), tenant.clone());
        let message = identity.identify(with_payload(json)).unwrap();
        assert_eq!((message.id().as_str(), message.tenant().as_str()), (id, "t"));
        let unfit = identity.identify(with_payload(r#"{"a": 1, "tenant": "t"}"#)).unwrap_err();
        assert_eq!(unfit.reason, "the message has no id: the payload has nothing at /b");
        assert_eq!(unfit.tenant, Some(Tenant::new("t").unwrap()));
    }
}

#[test]
fn an_id_of_parts_has_the_same_limit() {
    let identity = Identity::new(all(&["header:a", "header:b"]).unwrap(), None);
    let half = "x".repeat(256);
    let record = with_headers(&[("a", Some(half.as_bytes())), ("b", Some(half.as_bytes()))]);
    let unfit = identity.identify(record).unwrap_err();
    assert!(unfit.reason.contains("513 bytes"), "{}", unfit.reason);
}

#[test]
fn identity_makes_a_message_of_id_and_tenant() {
    let json = with_payload(r#"{"id": "m-1", "tenant": 5}"#);
    let identity = Identity::new(Selector::Json("/id".into()), Some(Selector::Json("/tenant".into())));
    let message = identity.identify(json.clone()).unwrap();
    assert_eq!((message.id().as_str(), message.tenant().as_str()), ("m-1", "5"));
    let message = Identity::new(Selector::Coordinates, None).identify(json).unwrap();
    assert_eq!((message.id().as_str(), message.tenant().as_str()), ("orders/3/42", ""));
}

#[test]
fn what_cannot_be_named_is_unfit_with_what_is_known() {
    let identity = Identity::new(Selector::Json("/id".into()), Some(Selector::Json("/tenant".into())));
    let unfit = identity.identify(with_payload(r#"{"tenant": "t"}"#)).unwrap_err();
    assert_eq!(unfit.reason, "the message has no id: the payload has nothing at /id");
    assert_eq!((unfit.id, unfit.tenant), (None, Some(Tenant::new("t").unwrap())));

    let unfit = identity.identify(with_payload(r#"{"id": "m"}"#)).unwrap_err();
    assert_eq!(unfit.reason, "the message has no tenant: the payload has nothing at /tenant");
    assert_eq!((unfit.id, unfit.tenant), (Some(MessageId::new("m").unwrap()), None));

    for (id, reason) in
        [("", "the message id is empty"), ("a\0b", "contains"), (&*"x".repeat(513), "513 bytes")]
    {
        let record = with_headers(&[("id", Some(id.as_bytes()))]);
        let unfit = Identity::new(Selector::Header("id".into()), None).identify(record.clone()).unwrap_err();
        assert!(unfit.reason.contains(reason), "{}", unfit.reason);
        assert_eq!(unfit.record, record);
    }
}

#[test]
fn what_is_too_large_is_unfit_and_names_size_and_limit() {
    let id = ("id", Some(b"m-1".as_slice()));
    let mut identity = Identity::new(Selector::Header("id".into()), None);
    identity.limits = Limits { key_bytes: 4, header_count: 2, header_bytes: 10, payload_bytes: 8 };
    let cases = [
        (
            Record { key: Some("12345".into()), ..with_headers(&[id]) },
            "the key has 5 bytes, more than the limit of 4",
        ),
        (Record { payload: Some("123456789".into()), ..with_headers(&[id]) }, "the payload has 9 bytes"),
        (with_headers(&[id, ("a", None), ("b", None)]), "there are 3 headers, more than the limit of 2"),
        (with_headers(&[id, ("a", Some(b"12345"))]), "the headers have 11 bytes, more than the limit of 10"),
    ];
    for (record, reason) in cases {
        let unfit = identity.identify(record).unwrap_err();
        assert!(unfit.reason.contains(reason), "{}", unfit.reason);
        assert_eq!(unfit.id, Some(MessageId::new("m-1").unwrap()));
    }
    // An id inside a payload that is too large stays unknown instead of being parsed.
    identity.id = Selector::Json("/i".into());
    let unfit = identity.identify(with_payload(r#"{"i": "m-1"}"#)).unwrap_err();
    assert_eq!((unfit.id, unfit.tenant), (None, Some(Tenant::none())));
    let fits = Record { payload: Some("{\"i\":12}".into()), key: Some("1234".into()), ..record() };
    assert!(identity.identify(fits).is_ok());
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map("[ab/~01]{0,2}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// The walk finds what `serde_json`'s own pointers find in the parsed document.
    #[test]
    fn pointers_agree_with_serde_json(json in any_json(), parts in prop::collection::vec("[ab01]|~0|~1|a~1", 1..4)) {
        let pointer = parts.iter().map(|part| format!("/{part}")).collect::<String>();
        let [found] = pointer::read(json.to_string().as_bytes(), [Some(&pointer)]).unwrap();
        let text = match found {
            Some(Leaf::Text(text)) => Some(text),
            Some(Leaf::Other(_)) | None => None,
        };
        let expected = json.pointer(&pointer).and_then(|value| match value {
            serde_json::Value::String(text) => Some(text.clone()),
            serde_json::Value::Number(number) => Some(number.to_string()),
            _ => None,
        });
        prop_assert_eq!(text, expected);
    }

    /// Two lists of values give the same id only if they are the same list.
    #[test]
    fn ids_of_parts_are_unambiguous(
        one in prop::collection::vec("[a|~01]{1,3}", 2..5),
        other in prop::collection::vec("[a|~01]{1,3}", 2..5),
    ) {
        let id = |values: &[String]| {
            let names: Vec<String> = (0..values.len()).map(|nth| format!("header:{nth}")).collect();
            let headers = values.iter().enumerate().map(|(nth, value)| (nth.to_string(), Some(Bytes::copy_from_slice(value.as_bytes()))));
            let record = Record { headers: Headers::from_iter(headers), ..record() };
            all(&names.iter().map(String::as_str).collect::<Vec<_>>()).unwrap().select(&record).unwrap()
        };
        prop_assert_eq!(one == other, id(&one) == id(&other));
        // And the values can be read back.
        let unescape = |part: &str| part.replace("~1", "|").replace("~0", "~");
        prop_assert_eq!(id(&one).split('|').map(unescape).collect::<Vec<_>>(), one);
    }

    #[test]
    fn any_bytes_are_either_read_or_refused(payload in prop::collection::vec(any::<u8>(), 0..64)) {
        let record = Record { payload: Some(payload.into()), ..record() };
        let identity = Identity::new(Selector::Json("/a".into()), Some(Selector::CloudEvents));
        prop_assert!(identity.identify(record).is_err());
    }
}
