//! An event as a message of AMQP.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use oncebox_core::outbox::OutgoingEvent;

/// The header with the key of the event: AMQP has no place for it.
pub(crate) const KEY_HEADER: &str = "oncebox-key";

/// Written to disk before it is confirmed, where the queue is durable.
const PERSISTENT: u8 = 2;
/// What the frame itself takes, the properties besides the headers, and some room.
const FRAME_OVERHEAD_BYTES: usize = 2_048;

/// The properties and headers of the message, or why there can be no such message. All of them must fit into one frame: a
/// broker that gets a larger one closes the connection.
pub(super) fn properties(event: &OutgoingEvent, largest_frame: usize) -> Result<BasicProperties, String> {
    let mut headers = FieldTable::default();
    let (mut bytes, mut problem) = (0, None);
    let mut put = |name: &str, value: AMQPValue, len: usize| match ShortString::try_new(name) {
        Ok(name) => {
            bytes += name.as_str().len() + len + 6;
            headers.insert(name, value);
        }
        Err(_) => problem = Some(format!("the name of a header has {} bytes, more than 255", name.len())),
    };
    let mut properties = BasicProperties::default()
        .with_message_id(event.id().to_string().into())
        .with_delivery_mode(PERSISTENT);
    if let Ok(seconds) = u64::try_from(event.created_at_ms() / 1_000) {
        properties = properties.with_timestamp(seconds);
    }
    event.visit_headers(|name, value| {
        let short = value.and_then(|value| ShortString::try_new(std::str::from_utf8(value).ok()?).ok());
        match (name, short) {
            ("content-type", Some(value)) => properties = properties.clone().with_content_type(value),
            ("ce_type", Some(value)) => properties = properties.clone().with_type(value),
            _ => {}
        }
        put(name, value.map_or(AMQPValue::Void, field), value.map_or(0, <[u8]>::len));
    });
    if let Some(key) = event.key() {
        put(KEY_HEADER, field(key), key.len());
    }
    let most = largest_frame.saturating_sub(FRAME_OVERHEAD_BYTES);
    if bytes > most {
        problem =
            Some(format!("its headers and its key have {bytes} bytes, more than RabbitMQ takes: {most}"));
    }
    match problem {
        None => Ok(properties.with_headers(headers)),
        Some(problem) => Err(problem),
    }
}

/// Text as text, so that any client can read it.
fn field(value: &[u8]) -> AMQPValue {
    match std::str::from_utf8(value) {
        Ok(_) => AMQPValue::LongString(value.to_vec().into()),
        Err(_) => AMQPValue::ByteArray(value.to_vec().into()),
    }
}
