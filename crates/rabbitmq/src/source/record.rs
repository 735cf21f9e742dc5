//! A message of AMQP as a record.

use std::sync::Arc;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable};
use oncebox_core::inbox::Selector;
use oncebox_core::message::{Headers, PROPERTY_PREFIX, Record};
use oncebox_core::source::LogId;

use super::table::header_value;
use crate::error::Error;
use crate::legible::is_illegible;

/// What stands for the name of a header that is not UTF-8.
const UNREADABLE: &str = "\u{FFFD}";

/// The properties of a message that a selector can name, as in `property:message_id`. The last two are not properties to AMQP; they
/// come with each delivery.
pub const PROPERTIES: [&str; 15] = [
    "app_id",
    "cluster_id",
    "content_encoding",
    "content_type",
    "correlation_id",
    "delivery_mode",
    "expiration",
    "message_id",
    "priority",
    "reply_to",
    "timestamp",
    "type",
    "user_id",
    "exchange",
    "routing_key",
];

/// Whether a selector can find the id, the tenant or anything else in a message of a queue.
///
/// # Errors
/// `coordinates` cannot: a copy of a message has another number. Nor can the path of a request, or a property that AMQP does not have.
pub fn check_selector(selector: &Selector) -> Result<(), Error> {
    match selector {
        Selector::Coordinates => Err(Error::Setting(
            "`coordinates` tell nothing about a message of a queue: when it comes again it has another number; use \
             property:message_id, or whatever the sender sets"
                .to_owned(),
        )),
        Selector::Path(_) => Err(Error::Setting(format!("`{selector}` is for requests: a message of a queue has no path"))),
        Selector::Property(name) if !PROPERTIES.contains(&name.as_str()) => {
            let known = PROPERTIES.join(", ");
            Err(Error::Setting(format!("there is no property `{name}`; there are {known}")))
        }
        _ => Ok(()),
    }
}

/// How the deliveries of one channel become records.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) queue: Arc<str>,
    /// Which channel counts the deliveries.
    pub(super) log: LogId,
    /// Where the key is.
    pub(super) key: Option<Selector>,
}

impl Mapping {
    pub(super) fn record(&self, delivery: Delivery) -> Record {
        let properties = &delivery.properties;
        let offset = i64::try_from(delivery.delivery_tag).unwrap_or(i64::MAX);
        let mut record = Record::at(Arc::clone(&self.queue), 0, offset);
        record.log = Some(self.log.clone());
        record.redelivered = was_delivered_before(delivery.redelivered, properties.headers().as_ref());
        record.timestamp_ms = timestamp_ms(properties);
        record.headers = headers(&delivery);
        record.payload = (!delivery.data.is_empty()).then(|| delivery.data.into());
        // One whose key cannot be read has none.
        record.key = self.key.as_ref().and_then(|key| key.select(&record).ok()).map(Bytes::from);
        record
    }
}

/// A quorum queue counts how often a delivery went wrong; it may have given a message out before and have got it back in order.
fn was_delivered_before(flag: bool, headers: Option<&FieldTable>) -> bool {
    let count = headers.and_then(|headers| number(headers, "x-delivery-count"));
    flag && count != Some(0)
}

/// Seconds, unless the broker has added the milliseconds.
fn timestamp_ms(properties: &BasicProperties) -> Option<i64> {
    let precise = properties.headers().as_ref().and_then(|headers| number(headers, "timestamp_in_ms"));
    precise.or_else(|| i64::try_from((*properties.timestamp())?).ok()?.checked_mul(1_000))
}

fn number(headers: &FieldTable, name: &str) -> Option<i64> {
    match headers.inner().get(name)? {
        AMQPValue::ShortShortInt(number) => Some((*number).into()),
        AMQPValue::ShortShortUInt(number) => Some((*number).into()),
        AMQPValue::ShortInt(number) => Some((*number).into()),
        AMQPValue::ShortUInt(number) => Some((*number).into()),
        AMQPValue::LongInt(number) => Some((*number).into()),
        AMQPValue::LongUInt(number) => Some((*number).into()),
        AMQPValue::LongLongInt(number) => Some(*number),
        _ => None,
    }
}

/// The headers as they are, then what others expect among them, then the properties.
fn headers(delivery: &Delivery) -> Headers {
    let mut headers = Headers::new();
    let table = delivery.properties.headers().as_ref();
    for (name, value) in table.into_iter().flatten() {
        let name = if is_illegible(name.as_str()) { UNREADABLE } else { name.as_str() };
        let value = header_value(value);
        // Otherwise a sender could pass a header off as a property.
        match name.starts_with(PROPERTY_PREFIX) {
            true => headers.push(format!("header:{name}"), value),
            false => headers.push(name, value),
        }
    }
    add_cloud_event(&mut headers);
    let text = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    if let Some(content_type) = delivery.properties.content_type()
        && headers.last("content-type").is_none()
    {
        headers.push("content-type", text(content_type.as_str()));
    }
    visit_properties(delivery, |name, value| {
        if is_illegible(value) {
            return;
        }
        headers.push(format!("{PROPERTY_PREFIX}{name}"), text(value));
    });
    headers
}

/// CloudEvents has two prefixes for AMQP and another one for Kafka, by which the rest of oncebox knows the attributes.
fn add_cloud_event(headers: &mut Headers) {
    if headers.last("ce_id").is_some() {
        return;
    }
    let attribute = |(name, value): (&str, Option<&[u8]>)| {
        let name = name.strip_prefix("cloudEvents:").or_else(|| name.strip_prefix("cloudEvents_"))?;
        Some((format!("ce_{name}"), value.map(Bytes::copy_from_slice)))
    };
    let attributes: Vec<_> = headers.iter().filter_map(attribute).collect();
    for (name, value) in attributes {
        headers.push(name, value);
    }
}

/// Calls `visit` with each property that the message has, in the order of [`PROPERTIES`].
fn visit_properties(delivery: &Delivery, mut visit: impl FnMut(&str, &str)) {
    let properties = &delivery.properties;
    let text = [
        ("app_id", properties.app_id()),
        ("cluster_id", properties.cluster_id()),
        ("content_encoding", properties.content_encoding()),
        ("content_type", properties.content_type()),
        ("correlation_id", properties.correlation_id()),
        ("expiration", properties.expiration()),
        ("message_id", properties.message_id()),
        ("reply_to", properties.reply_to()),
        ("type", properties.kind()),
        ("user_id", properties.user_id()),
    ];
    for (name, value) in text {
        if let Some(value) = value {
            visit(name, value.as_str());
        }
    }
    let numbers = [
        ("delivery_mode", properties.delivery_mode().map(u64::from)),
        ("priority", properties.priority().map(u64::from)),
        ("timestamp", *properties.timestamp()),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            visit(name, &value.to_string());
        }
    }
    visit("exchange", delivery.exchange.as_str());
    visit("routing_key", delivery.routing_key.as_str());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(properties: BasicProperties, body: &str) -> Delivery {
        let mut delivery = Delivery::mock(7, "orders".into(), "order.placed".into(), false, body.into());
        delivery.properties = properties;
        delivery
    }

    fn table(headers: &[(&str, AMQPValue)]) -> FieldTable {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), value.clone());
        }
        table
    }

    fn text(text: &str) -> AMQPValue {
        AMQPValue::LongString(text.into())
    }

    fn record(delivery: Delivery) -> Record {
        record_with_key(delivery, None)
    }

    fn record_with_key(delivery: Delivery, key: Option<&str>) -> Record {
        let key = key.map(|key| key.parse().expect("a selector"));
        Mapping { queue: "q".into(), log: LogId::new("channel"), key }.record(delivery)
    }

    #[test]
    fn every_property_can_be_selected() {
        let properties = BasicProperties::default()
            .with_app_id("app".into())
            .with_cluster_id("cluster".into())
            .with_content_encoding("gzip".into())
            .with_content_type("application/json".into())
            .with_correlation_id("c-1".into())
            .with_delivery_mode(2)
            .with_expiration("1000".into())
            .with_message_id("m-1".into())
            .with_priority(3)
            .with_reply_to("answers".into())
            .with_timestamp(1_700_000_000)
            .with_type("OrderPlaced".into())
            .with_user_id("guest".into());
        let record = record(delivery(properties, "{}"));
        let values = PROPERTIES.map(|name| {
            let selector: Selector = format!("property:{name}").parse().expect("a selector");
            check_selector(&selector).expect(name);
            selector.select(&record).expect(name)
        });
        let expected = [
            "app",
            "cluster",
            "gzip",
            "application/json",
            "c-1",
            "2",
            "1000",
            "m-1",
            "3",
            "answers",
            "1700000000",
            "OrderPlaced",
            "guest",
            "orders",
            "order.placed",
        ];
        assert_eq!(values, expected);
        assert_eq!(record.headers.last("content-type"), Some(&b"application/json"[..]));
        assert_eq!((record.timestamp_ms, record.offset, &*record.topic), (Some(1_700_000_000_000), 7, "q"));
    }

    #[test]
    fn a_sender_cannot_pass_a_header_off_as_a_property() {
        let headers = table(&[("property:message_id", text("forged"))]);
        let record = record(delivery(BasicProperties::default().with_headers(headers), ""));
        assert!(Selector::Property("message_id".to_owned()).select(&record).is_err());
        assert_eq!(record.headers.last("header:property:message_id"), Some(&b"forged"[..]));
    }

    #[test]
    fn what_could_not_be_read_is_left_out() {
        let headers = table(&[("\u{1a}\u{1a}", text("value")), ("good", text("value"))]);
        let properties = BasicProperties::default().with_message_id("\u{1a}".into()).with_headers(headers);
        let record = record(delivery(properties, ""));
        assert!(
            Selector::Property("message_id".to_owned()).select(&record).is_err(),
            "two such ids may differ"
        );
        assert_eq!(record.headers.last("\u{FFFD}"), Some(&b"value"[..]));
        assert_eq!(record.headers.last("good"), Some(&b"value"[..]));
    }

    #[test]
    fn an_empty_body_is_no_payload() {
        assert_eq!(record(delivery(BasicProperties::default(), "")).payload, None);
        assert_eq!(record(delivery(BasicProperties::default(), "x")).payload.as_deref(), Some(&b"x"[..]));
    }

    #[test]
    fn the_key_is_wherever_a_selector_finds_it() {
        let headers = table(&[("oncebox-key", text("A-1"))]);
        let message =
            || delivery(BasicProperties::default().with_headers(headers.clone()), r#"{"sku":"B-2"}"#);
        for (selector, key) in [
            ("header:oncebox-key", Some("A-1")),
            ("property:routing_key", Some("order.placed")),
            ("json:/sku", Some("B-2")),
            ("header:missing", None),
        ] {
            let record = record_with_key(message(), Some(selector));
            assert_eq!(record.key.as_deref(), key.map(str::as_bytes), "{selector}");
        }
        assert_eq!(record(message()).key, None);
    }

    #[test]
    fn cloud_events_are_known_by_either_prefix() {
        for prefix in ["cloudEvents:", "cloudEvents_", "ce_"] {
            let headers =
                table(&[(&format!("{prefix}id"), text("e-1")), (&format!("{prefix}source"), text("/shop"))]);
            let record = record(delivery(BasicProperties::default().with_headers(headers), "{}"));
            assert_eq!(Selector::CloudEvents.select(&record).as_deref(), Ok("/shop e-1"), "{prefix}");
        }
        let structured = BasicProperties::default().with_content_type("application/cloudevents+json".into());
        let record = record(delivery(structured, r#"{"source":"/shop","id":"e-2"}"#));
        assert_eq!(Selector::CloudEvents.select(&record).as_deref(), Ok("/shop e-2"));
    }

    #[test]
    fn the_count_of_a_quorum_queue_says_more_than_the_flag() {
        let before = |flag, count: Option<i64>| {
            let headers = count.map(|count| table(&[("x-delivery-count", AMQPValue::LongLongInt(count))]));
            was_delivered_before(flag, headers.as_ref())
        };
        assert!(before(true, None) && before(true, Some(1)) && before(true, Some(20)));
        assert!(!before(false, None) && !before(true, Some(0)) && !before(false, Some(20)));
    }

    #[test]
    fn milliseconds_of_the_broker_win_over_seconds() {
        let headers = table(&[("timestamp_in_ms", AMQPValue::LongLongInt(1_700_000_000_123))]);
        let properties = BasicProperties::default().with_timestamp(1_700_000_000).with_headers(headers);
        assert_eq!(record(delivery(properties, "")).timestamp_ms, Some(1_700_000_000_123));
    }

    #[test]
    fn selectors_that_find_nothing_in_a_queue_are_refused() {
        let refused =
            |text: &str| check_selector(&text.parse().expect("a selector")).expect_err(text).to_string();
        assert!(refused("coordinates").contains("property:message_id"));
        assert!(refused("path:tenant").contains("no path"));
        assert!(refused("property:messageid").contains("no property `messageid`"));
        for good in ["key", "header:x", "json:/x", "cloudevents", "property:type"] {
            assert!(check_selector(&good.parse().expect("a selector")).is_ok(), "{good}");
        }
    }
}
