//! What an event says in its row.

use super::*;
use crate::message::Record;
use crate::names::{ConsumerName, MessageId, Tenant};

fn message(traceparent: Option<&str>) -> Message {
    let mut record = Record::at("orders", 0, 7);
    if let Some(value) = traceparent {
        record.headers.push("traceparent", Some(value.to_owned().into()));
    }
    let id = MessageId::new("order-7").unwrap_or_else(|e| panic!("{e}"));
    Message::new(id, Tenant::none(), record)
}

#[test]
fn what_cannot_be_a_topic_is_refused() {
    for topic in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
        assert!(Event::to(topic).row().is_err(), "{topic:?}");
    }
    for topic in ["a", "a.b_c-d9", &"x".repeat(249)] {
        assert!(Event::to(topic).row().is_ok(), "{topic:?}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let error = Event::to("t").key(vec![0; MAX_EVENT_KEY_BYTES + 1]).row().unwrap_err();
    assert_eq!(error.to_string(), "the key of an event to t has 65537 bytes, more than 65536");
}

#[test]
fn json_says_what_it_is_unless_told_otherwise() {
    let event = Event::to("t").json(&1).unwrap();
    assert_eq!(event.row().unwrap().headers, r#"{"content-type":"application/json"}"#);
    let event = Event::to("t").header("content-type", "text/x").json(&1).unwrap();
    assert_eq!(event.row().unwrap().headers, r#"{"content-type":"text/x"}"#);
}

#[test]
fn a_message_can_be_named_as_the_cause() {
    let event = Event::to("t").caused_by(&message(Some("00-aa-bb-01")));
    let row = event.row().unwrap();
    assert_eq!(row.causation_id.as_deref(), Some("order-7"));
    assert_eq!(row.consumer, None, "nobody's handler runs");
    assert_eq!(row.headers, r#"{"traceparent":"00-aa-bb-01"}"#);
    let own = Event::to("t").header("traceparent", "mine").caused_by(&message(Some("theirs")));
    assert_eq!(own.row().unwrap().headers, r#"{"traceparent":"mine"}"#);
}

#[test]
fn what_is_no_message_can_be_the_cause_too() {
    let event = Event::to("t").causation_id("request-4711");
    assert_eq!(event.row().unwrap().causation_id.as_deref(), Some("request-4711"));
    let both = Event::to("t").caused_by(&message(Some("00-aa-bb-01"))).causation_id("request-4711");
    let row = both.row().unwrap();
    assert_eq!(row.causation_id.as_deref(), Some("request-4711"), "what is said comes first");
    assert_eq!(row.headers, r#"{"traceparent":"00-aa-bb-01"}"#);
    assert!(Event::to("t").causation_id("x".repeat(513)).row().is_err());
}

#[test]
fn the_correlation_id_is_handed_on() {
    let mut record = Record::at("orders", 0, 7);
    record.headers.push("correlation-id", Some("case-1".into()));
    let of_case = Message::new(MessageId::new("order-7").unwrap(), Tenant::none(), record);
    let event = Event::to("t").caused_by(&of_case);
    assert_eq!(event.row().unwrap().headers, r#"{"correlation-id":"case-1"}"#);
    let own = Event::to("t").correlation_id("case-2").caused_by(&of_case);
    assert_eq!(own.row().unwrap().headers, r#"{"correlation-id":"case-2"}"#);
    let none = Event::to("t").caused_by(&message(None));
    assert_eq!(none.row().unwrap().headers, "{}");
}

#[test]
fn type_and_source_are_those_of_cloudevents() {
    let event = Event::to("t").event_type("order.placed").event_source("/shop");
    assert_eq!(event.row().unwrap().headers, r#"{"ce_source":"/shop","ce_type":"order.placed"}"#);
}

#[test]
fn a_delay_is_counted_from_when_the_event_is_written() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    assert_eq!(Event::to("t").deliver_at(at).row().unwrap().deliver_at_ms, Some(1_700_000_000_123));
    assert_eq!(Event::to("t").row().unwrap().deliver_at_ms, None);
    let event = Event::to("t").delay(Duration::from_secs(3600));
    let now = When::At(SystemTime::now()).as_ms(SystemTime::now());
    let due = event.row().unwrap().deliver_at_ms.unwrap() - now;
    assert!((3_600_000..3_660_000).contains(&due), "{due}");
}

#[test]
fn an_expiry_travels_in_a_header() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    let row = Event::to("t").expires_at(at).row().unwrap().headers;
    assert_eq!(row, r#"{"ce_expirytime":"2023-11-14T22:13:20.123Z"}"#);
    let own = Event::to("t").header("ce_expirytime", "never").expires_at(at).row().unwrap().headers;
    assert_eq!(own, r#"{"ce_expirytime":"never"}"#);
}

#[test]
fn an_event_that_nobody_would_ever_get_is_refused() {
    let minute = Duration::from_secs(60);
    assert!(Event::to("t").delay(minute).expires_in(2 * minute).row().is_ok());
    let error = Event::to("t").delay(minute).expires_in(minute).row().unwrap_err();
    assert_eq!(error.to_string(), "an event to t would expire before its time has come");
}

#[tokio::test]
async fn the_message_being_handled_is_the_cause() {
    let consumer = ConsumerName::new("billing").unwrap();
    let work = async {
        let before = Event::to("t").row().unwrap().causation_id;
        call::set_message(&message(None));
        assert!(call::note_events_written());
        (before, Event::to("t").row().unwrap().consumer, Event::to("t").row().unwrap().causation_id)
    };
    let ((before, emitter, after), events) = call::scope(&consumer, work).await;
    assert!(events);
    assert_eq!(before, None);
    assert_eq!((emitter.as_deref(), after.as_deref()), (Some("billing"), Some("order-7")));
    assert!(!call::note_events_written(), "outside there is nobody to note it");
}
