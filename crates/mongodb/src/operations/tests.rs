//! What is understood, what is filled in, and that it stays data.

#![allow(clippy::unwrap_used)]

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use oncebox_core::message::{Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use proptest::prelude::*;

use super::operation::{Action, Operation, Standing};
use super::values::Wanted;
use super::*;

const EACH: Standing = Standing::Each(PayloadKind::Json);
const BATCH: Standing = Standing::Batch(PayloadKind::Json);

fn message(payload: &str) -> Message {
    let mut record = Record::at("stock.updates", 3, 7);
    record.key = Some("k".into());
    record.payload = Some(payload.to_owned().into());
    record.timestamp_ms = Some(1_000);
    record.headers.push("type", Some("Sold".into()));
    Message::new(MessageId::new("m-1").unwrap(), Tenant::none(), record)
}

/// The filter and the update, or the document, that an operation sends for this payload.
fn filled(operation: &str, payload: &str) -> Result<Vec<Bson>, String> {
    let operation = Operation::read(operation, EACH).map_err(|problems| format!("{problems:?}"))?;
    let wanted = Wanted::of(std::slice::from_ref(&operation), PayloadKind::Json);
    let row = wanted.values(&message(payload))?;
    match &operation.action {
        Action::Insert { document, .. } => Ok(vec![document.fill(&row)?]),
        Action::Update { filter, with, .. } => Ok(vec![filter.fill(&row)?, with.fill(&row)?]),
        Action::Delete { filter, .. } => Ok(vec![filter.fill(&row)?]),
        Action::Emit(_) => Ok(Vec::new()),
    }
}

fn inserted(document: &str, payload: &str) -> Document {
    let operation = format!(r#"{{"insert": "t", "document": {document}}}"#);
    filled(&operation, payload).unwrap().remove(0).as_document().unwrap().clone()
}

#[test]
fn values_are_filled_in_with_their_types() {
    let all = r#"{"id": ":id", "key": ":key", "headers": ":headers.type", "topic": ":topic", "partition": ":partition",
        "offset": ":offset", "timestamp": ":timestamp", "tenant": ":tenant", "int": ":payload.int", "long": ":payload.long",
        "double": ":payload.double", "deep": ":payload.a.1.b", "missing": ":payload.no.such", "beyond": ":payload.a.9",
        "text": "::id", "fixed": 5000000000, "list": ["x", ":payload.int"]}"#;
    let payload = r#"{"int": -3, "long": 5000000000, "double": 1.5, "a": [0, {"b": true}]}"#;
    assert_eq!(
        inserted(all, payload),
        doc! {
            "id": "m-1", "key": "k", "headers": "Sold", "topic": "stock.updates", "partition": 3, "offset": 7_i64,
            "timestamp": DateTime::from_millis(1_000), "tenant": "", "int": -3, "long": 5_000_000_000_i64, "double": 1.5,
            "deep": true, "missing": Bson::Null, "beyond": Bson::Null, "text": ":id", "fixed": 5_000_000_000_i64,
            "list": ["x", -3],
        }
    );
    assert_eq!(
        inserted(r#"":payload""#, r#"{"z": 1, "a": {"$gt": ""}}"#),
        doc! { "z": 1, "a": { "$gt": "" } }
    );
}

#[test]
fn types_that_json_lacks_are_written_as_extended_json() {
    let document = r#"{"id": {"$oid": ":payload.oid"}, "at": {"$date": ":payload.at"}, "ms": {"$date": ":payload.ms"},
        "price": {"$numberDecimal": ":payload.price"}, "uuid": {"$uuid": ":payload.uuid"}, "none": {"$date": ":payload.no"},
        "fixed": {"$date": "1970-01-01T00:00:01Z"}, "long": {"$numberLong": "7"}}"#;
    let payload = r#"{"oid": "507f1f77bcf86cd799439011", "at": "1970-01-01T00:00:02Z", "ms": 3000, "price": "1.10",
        "uuid": "00112233-4455-6677-8899-aabbccddeeff"}"#;
    let made = inserted(document, payload);
    assert_eq!(made.get_object_id("id").unwrap(), ObjectId::parse_str("507f1f77bcf86cd799439011").unwrap());
    let date = |name: &str| made.get_datetime(name).unwrap().timestamp_millis();
    assert_eq!((date("at"), date("ms"), date("fixed")), (2_000, 3_000, 1_000));
    assert_eq!(made.get("price").unwrap().to_string(), "1.10");
    assert!(matches!(made.get("uuid"), Some(Bson::Binary(binary)) if binary.to_uuid().is_ok()));
    assert_eq!((made.get("none"), made.get("long")), (Some(&Bson::Null), Some(&Bson::Int64(7))));

    let wrong = filled(r#"{"insert": "t", "document": {"a": {"$date": ":payload.a"}}}"#, r#"{"a": "soon"}"#)
        .unwrap_err();
    assert!(wrong.starts_with("\"soon\" is not a time in RFC 3339"), "{wrong}");
    // In a payload the same names mean nothing.
    assert_eq!(inserted(r#"{"a": ":payload.a"}"#, r#"{"a": {"$date": 1}}"#), doc! { "a": { "$date": 1 } });
}

#[test]
fn a_double_is_the_one_that_was_sent() {
    // Readers that save time get the last bit of it wrong.
    let made = inserted(r#"{"a": ":payload.a"}"#, r#"{"a": 51.248178375505404}"#);
    assert_eq!(made.get_f64("a").unwrap().to_bits(), 51.248178375505404_f64.to_bits());
}

#[test]
fn a_number_that_was_rounded_is_no_exact_one() {
    let typed = |kind: &str, number: &str| {
        let operation = format!(r#"{{"insert": "t", "document": {{"a": {{"{kind}": ":payload.a"}}}}}}"#);
        filled(&operation, &format!(r#"{{"a": {number}}}"#))
    };
    for (kind, number) in [
        ("$numberDecimal", "12345678901234567.89"),
        ("$numberDecimal", "0.12345678901234567"),
        ("$numberLong", "9007199254740993.0"),
        ("$numberLong", "-1e18"),
    ] {
        let why = typed(kind, number).unwrap_err();
        assert!(why.contains("send it as a text"), "{kind} {number}: {why}");
    }
    for (kind, number, expected) in [
        ("$numberDecimal", "1234567890123.45", "1234567890123.45"),
        ("$numberDecimal", r#""12345678901234567.89""#, "12345678901234567.89"),
        ("$numberDecimal", "1234567890123456789", "1234567890123456789"),
        ("$numberLong", "9007199254740993", "9007199254740993"),
        ("$numberLong", r#""9007199254740993""#, "9007199254740993"),
        ("$numberLong", "3.0", "3"),
    ] {
        let made = typed(kind, number).unwrap().remove(0);
        let made = made.as_document().unwrap().get("a").unwrap().to_string();
        assert_eq!(made, expected, "{kind} {number}");
    }
}

#[test]
fn a_filter_needs_what_it_compares_with() {
    let missing = [
        r#"{"delete": "t", "filter": {"order": ":payload.order"}}"#,
        r#"{"delete": "t", "filter": {"order": {"$eq": ":payload.order"}}}"#,
        r#"{"delete": "t", "filter": {"order": {"$in": [":payload.order"]}}}"#,
        r#"{"delete": "t", "filter": {"order": {"$oid": ":payload.order"}}}"#,
        r#"{"delete": "t", "filter": {"$or": [{"order": ":payload.order"}]}}"#,
        r#"{"delete": "t", "filter": {"$expr": {"$lt": ["$order", ":payload.order"]}}}"#,
        r#"{"update": "t", "filter": {}, "with": {"$pull": {"lines": {"order": ":payload.order"}}}}"#,
        r#"{"update": "t", "filter": {}, "with": {"$pull": {"lines": ":payload.order"}}}"#,
    ];
    for operation in missing {
        let why = filled(operation, "{}").unwrap_err();
        assert!(why.starts_with("a filter needs `payload.order`"), "{operation}: {why}");
    }
    // A null that was sent is one; and what is stored may be missing.
    let filter =
        r#"{"update": "t", "filter": {"order": ":payload.order"}, "with": {"$set": {"a": ":payload.a"}}}"#;
    let made = filled(filter, r#"{"order": null}"#).unwrap();
    let set = doc! { "$set": { "a": Bson::Null } };
    assert_eq!(made, [Bson::Document(doc! { "order": Bson::Null }), Bson::Document(set)]);
}

#[test]
fn a_filter_needs_a_key_if_it_names_it() {
    let operation = Operation::read(r#"{"delete": "t", "filter": {"k": ":key"}}"#, EACH).unwrap();
    let wanted = Wanted::of(std::slice::from_ref(&operation), PayloadKind::Json);
    let Action::Delete { filter, .. } = &operation.action else { panic!("{operation:?}") };
    let without = Message::new(MessageId::new("m-1").unwrap(), Tenant::none(), Record::at("t", 0, 0));
    let fill = |message: &Message| filter.fill(&wanted.values(message).unwrap());
    assert!(fill(&without).unwrap_err().starts_with("a filter needs `key`"));
    assert_eq!(fill(&message("{}")), Ok(Bson::Document(doc! { "k": "k" })));
}

#[test]
fn a_pipeline_uses_what_it_names() {
    let mut binary = Record::at("t", 0, 0);
    binary.key = Some(vec![0xff].into());
    binary.payload = Some("{}".into());
    let binary = Message::new(MessageId::new("m-1").unwrap(), Tenant::none(), binary);
    for (stage, uses_key) in [
        (r#"{"$group": {"_id": "$payload.key", "monkey": {"$sum": "$payload.keys"}}}"#, false),
        (r#"{"$group": {"_id": "$key"}}"#, true),
        (r#"{"$match": {"key": "a"}}"#, true),
        (r#"{"$unset": ["payload", "key"]}"#, true),
        (r#"{"$set": {"all": "$$ROOT"}}"#, true),
    ] {
        let operation =
            format!(r#"{{"insert": "t", "document": {{"a": ":row._id"}}, "messages": [{stage}]}}"#);
        let operation = Operation::read(&operation, BATCH).unwrap();
        let wanted = Wanted::of(std::slice::from_ref(&operation), PayloadKind::Json);
        let read = wanted.values(&binary);
        assert_eq!(read.is_err(), uses_key, "{stage}: {read:?}");
    }
}

#[test]
fn operators_in_a_payload_stay_data() {
    let attack = r#"{"a": {"$gt": ""}, "l": [{"$elemMatch": {"x": 1}}], "t": "$on_hand"}"#;
    let case = |operation: &str| filled(operation, attack).unwrap();
    let gt = doc! { "$gt": "" };
    for (operation, expected) in [
        (r#"{"delete": "t", "filter": {"_id": ":payload.a"}}"#, doc! { "_id": { "$eq": &gt } }),
        (r#"{"delete": "t", "filter": {"_id": ":payload.t"}}"#, doc! { "_id": "$on_hand" }),
        (
            r#"{"delete": "t", "filter": {"$or": [{"x": ":payload.a"}]}}"#,
            doc! { "$or": [{ "x": { "$eq": &gt } }] },
        ),
        (r#"{"delete": "t", "filter": {"x": {"$lt": ":payload.a"}}}"#, doc! { "x": { "$lt": &gt } }),
        (
            r#"{"delete": "t", "filter": {"x": {"$not": {"$elemMatch": {"y": ":payload.a"}}}}}"#,
            doc! { "x": { "$not": { "$elemMatch": { "y": { "$eq": &gt } } } } },
        ),
        (
            r#"{"delete": "t", "filter": {"$expr": {"$eq": ["$x", ":payload.t"]}}}"#,
            doc! { "$expr": { "$eq": ["$x", { "$literal": "$on_hand" }] } },
        ),
    ] {
        assert_eq!(case(operation), [Bson::Document(expected)], "{operation}");
    }
    for (with, expected) in [
        (r#"{"$set": {"x": ":payload.a"}}"#, Bson::Document(doc! { "$set": { "x": &gt } })),
        (r#"{"$push": {"x": ":payload.a"}}"#, Bson::Document(doc! { "$push": { "x": { "$each": [&gt] } } })),
        (r#"{"$pull": {"x": ":payload.a"}}"#, Bson::Document(doc! { "$pull": { "x": { "$eq": &gt } } })),
        (
            r#"{"$pull": {"x": {"y": ":payload.a"}}}"#,
            Bson::Document(doc! { "$pull": { "x": { "y": { "$eq": &gt } } } }),
        ),
        (
            r#"[{"$set": {"x": {"$concat": ["$y", ":payload.t"]}, "z": {"$literal": ":payload.t"}}}]"#,
            Bson::Array(vec![Bson::Document(
                doc! { "$set": { "x": { "$concat": ["$y", { "$literal": "$on_hand" }] }, "z": { "$literal": "$on_hand" } } },
            )]),
        ),
    ] {
        let operation = format!(r#"{{"update": "t", "filter": {{"_id": 1}}, "with": {with}}}"#);
        assert_eq!(case(&operation)[1], expected, "{with}");
    }
    let pull = r#"{"update": "t", "filter": {}, "with": {"$pull": {"x": [":payload.a", 1]}}}"#;
    assert_eq!(
        case(pull)[1],
        Bson::Document(doc! { "$pull": { "x": [&gt, 1] } }),
        "an array is compared as it is"
    );
    for list in ["$in", "$nin", "$all"] {
        let operation = format!(r#"{{"delete": "t", "filter": {{"x": {{"{list}": ":payload.l"}}}}}}"#);
        let why = filled(&operation, attack).unwrap_err();
        assert!(why.contains("take for operators"), "{why}");
        let operation = format!(r#"{{"delete": "t", "filter": {{"x": {{"{list}": [":payload.a"]}}}}}}"#);
        assert!(filled(&operation, attack).is_err());
    }
}

#[test]
fn what_no_document_can_hold_is_a_reason_to_reject() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let read = |payload: &str| filled(r#"{"insert": "t", "document": {"p": ":payload"}}"#, payload);
    assert!(read(&nested(100)).is_ok());
    for (payload, why) in [
        (nested(101).as_str(), "deeper than the 100 levels"),
        (nested(1_000).as_str(), "cannot be read as JSON"),
        (r#""\ud800""#, "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("1 2", "cannot be read as JSON"),
        ("[9223372036854775808]", "too large for a long"),
        (r#"{"a": -92233720368547758080, "b": "1"}"#, "too large for a long"),
        ("1e400", "cannot be read as JSON"),
    ] {
        let error = read(payload).unwrap_err();
        assert!(error.contains(why), "{payload:.40}: {error}");
    }
    assert_eq!(
        read(r#"["99999999999999999999 \" 99999999999999999999", 9223372036854775807, 1.0e30]"#)
            .unwrap()
            .len(),
        1
    );
    // What is not used may be anything.
    assert!(filled(r#"{"insert": "t", "document": {"p": ":id"}}"#, "{").is_ok());
}

fn said(operation: &str, standing: Standing) -> Vec<String> {
    check_operation(operation, standing).iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_a_way_out() {
    for (operation, expected) in [
        ("[]", "this is not an operation; write"),
        (r#"{"updaet": "t"}"#, "did you mean `update`?"),
        (r#"{"insert": "t", "delete": "t"}"#, "insert and delete are 2 operations; write one of them"),
        (r#"{"insert": "t"}"#, "document: it is missing"),
        (r#"{"insert": "t", "document": 1}"#, "document: this is not a document"),
        (r#"{"insert": "t", "document": {}, "rows": 1}"#, "rows: this key is not known"),
        (r#"{"insert": "", "document": {}}"#, "insert: this is not the name of a collection"),
        (r#"{"insert": ":topic", "document": {}}"#, "insert: the name of a collection is never filled in"),
        (
            r#"{"insert": "oncebox_outbox", "document": {}}"#,
            "belongs to oncebox; write to one of yours; an event is written by `emit`",
        ),
        (
            r#"{"insert": "t", "document": {"a": {"b": [":idd"]}}}"#,
            "document.a.b.0: there is no parameter `:idd`; did you mean `:id`?",
        ),
        (r#"{"insert": "t", "document": {"a": ":row.id"}}"#, "document.a: there are rows in `batch` only"),
        (r#"{"insert": "t", "document": {"a": ":id.x"}}"#, "document.a: `:id` has no fields here"),
        (r#"{"insert": "t", "document": {"a": ":payload..x"}}"#, "has an empty step"),
        (
            r#"{"insert": "t", "document": {":key": 1}}"#,
            "document.:key: the name of a field is never filled in",
        ),
        (r#"{"insert": "t", "document": {"a": {"$oid": "x"}}}"#, "document.a: \"x\" is not an ObjectId"),
        (r#"{"delete": "t"}"#, "filter: it is missing"),
        (r#"{"delete": "t", "filter": ":payload"}"#, "filter: this is not a filter"),
        (
            r#"{"delete": "t", "filter": {"a": {"$gtt": 1}}}"#,
            "filter.a.$gtt: there is no operator `$gtt` here; did you mean `$gt`?",
        ),
        (r#"{"delete": "t", "filter": {"$where": "x"}}"#, "filter.$where: there is no operator"),
        (
            r#"{"delete": "t", "filter": {"a": {"$not": ":payload.x"}}}"#,
            "filter.a.$not: nothing is filled in here",
        ),
        (r#"{"delete": "t", "filter": {"a": {"$elemMatch": ":payload.x"}}}"#, "nothing is filled in here"),
        (
            r#"{"delete": "t", "filter": {"$or": ":payload.x"}}"#,
            "filter.$or: this is not an array of filters",
        ),
        (
            r#"{"delete": "t", "filter": {}, "rows": 2}"#,
            "rows: one document at most is matched, so 2 can never be; write `many = true`",
        ),
        (r#"{"delete": "t", "filter": {}, "rows": "2..1"}"#, "rows: this is not a number or a range"),
        (r#"{"delete": "t", "filter": {}, "many": 1}"#, "many: this is not a boolean"),
        (r#"{"update": "t", "filter": {}}"#, "with: it is missing"),
        (
            r#"{"update": "t", "filter": {}, "with": {"a": 1}}"#,
            "with.a: this would replace the whole document",
        ),
        (
            r#"{"update": "t", "filter": {}, "with": {"$ste": {"a": 1}}}"#,
            "with.$ste: there is no modifier `$ste` here; did you mean `$set`?",
        ),
        (
            r#"{"update": "t", "filter": {}, "with": {"$set": ":payload"}}"#,
            "with.$set: nothing is filled in here",
        ),
        (
            r#"{"update": "t", "filter": {}, "with": {"$rename": {"a": ":payload.x"}}}"#,
            "with.$rename.a: nothing is filled in here",
        ),
        (r#"{"update": "t", "filter": {}, "with": []}"#, "with: the pipeline is empty"),
        (r#"{"update": "t", "filter": {}, "with": [1]}"#, "with.0: this is not a stage"),
        (
            r#"{"upsert": "t", "filter": {}, "with": {"$inc": {"a": 1}}, "rows": 1}"#,
            "rows: this key is not known",
        ),
        (r#"{"insert": "t", "document": {}, "messages": []}"#, "messages: this key is not known"),
        (r#"{"emit": "a b"}"#, "emit: \"a b\" is not a topic"),
        (r#"{"emit": "t", "headers": 1}"#, "headers: this is not a table"),
        (r#"{"emit": "t", "delay": "soon"}"#, "delay: this is not a duration"),
        (r#"{"emit": "t", "delay": 5}"#, "delay: this is not a duration"),
        (r#"{"emit": "t", "delay": "1h", "deliver_at": ":payload.at"}"#, "both say when"),
    ] {
        let said = said(operation, EACH);
        assert_eq!(said.len(), 1, "{operation}: {said:?}");
        assert!(said[0].contains(expected), "{operation}: {said:?}");
    }
    for (operation, expected) in [
        (
            r#"{"insert": "t", "document": {"a": ":payload.x"}}"#,
            "`:payload` belongs to one message, but `batch` works on rows; write `:row.payload.x`",
        ),
        (r#"{"insert": "t", "document": {"a": ":rwo"}}"#, "did you mean `:row`?"),
        (
            r#"{"insert": "t", "document": {}, "messages": [{"$match": {"a": ":row.x"}}]}"#,
            "messages.0.$match.a: nothing is filled into a pipeline",
        ),
        (r#"{"insert": "t", "document": {}, "messages": [{"$out": "x"}]}"#, "messages.0: `$out` writes"),
        (r#"{"insert": "t", "document": {}, "messages": {}}"#, "messages: this is not a pipeline"),
    ] {
        let said = said(operation, BATCH);
        assert_eq!(said.len(), 1, "{operation}: {said:?}");
        assert!(said[0].contains(expected), "{operation}: {said:?}");
    }
    let several = r#"{"update": "t", "filter": {"a": ":x"}, "with": {"$foo": {"a": 1}}, "rwos": 1}"#;
    assert_eq!(said(several, EACH).len(), 3);
    let text = Standing::Each(PayloadKind::Text);
    assert!(
        said(r#"{"insert": "t", "document": {"a": ":payload.x"}}"#, text)[0].contains("has no fields here")
    );
}

#[test]
fn a_sweep_takes_nothing_in() {
    assert_eq!(
        check_sweep(
            r#"{"aggregate": "t", "pipeline": [{"$match": {"a": {"$date": "1970-01-01T00:00:00Z"}}}]}"#
        ),
        []
    );
    let problems =
        check_sweep(r#"{"aggregate": "t", "pipeline": [{"$match": {"a": ":id"}}, {"$merge": "t"}]}"#);
    assert_eq!(
        check_sweep(r#"{"aggregate": "t", "pipeline": [{"$match": {"a": [":x", "::id", ":"], ":b": 1}}]}"#),
        []
    );
    let places: Vec<_> = problems.iter().map(|problem| problem.path.join(".")).collect();
    assert_eq!(places, ["pipeline.0.$match.a", "pipeline.1"]);
}

proptest! {
    /// Whatever a message holds, what stands beside it in a filter is an equality.
    #[test]
    fn a_filter_is_never_changed_by_a_value(key in "[$a-z.]{0,6}", inner in "[$a-z]{0,4}") {
        let payload = serde_json::json!({"x": {key: {inner: 1}}}).to_string();
        let made = filled(r#"{"delete": "t", "filter": {"a": ":payload.x", "b": 1}}"#, &payload).unwrap();
        let filter = made[0].as_document().unwrap();
        prop_assert_eq!(filter.keys().collect::<Vec<_>>(), ["a", "b"]);
        prop_assert_eq!(filter.get_document("a").unwrap().keys().collect::<Vec<_>>(), ["$eq"]);
    }
}
