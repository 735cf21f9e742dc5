//! Events of a handler.

use std::time::SystemTime;

use mongodb::bson::{Bson, Document};
use oncebox_core::message::Message;
use oncebox_core::outbox::Event;
use oncebox_sql::PayloadKind;

use super::json::{self, AsJson};
use super::operation::{Due, Emission, is_payload};
use super::template::Template;
use super::typed::Type;

impl Emission {
    /// The event for this row. The error is the reason to reject its message.
    pub(super) fn event(
        &self,
        row: &Document,
        message: Option<&Message>,
        payload: PayloadKind,
    ) -> Result<Event, String> {
        let mut event = Event::to(self.topic.as_str());
        if let Some(message) = message {
            event = event.caused_by(message);
        }
        if let Some(key) = self.key.as_ref().map(|key| bytes("key", key, row)).transpose()?.flatten() {
            event = event.key(key);
        }
        for (name, value) in &self.headers {
            if let Some(value) = bytes("header", value, row)? {
                event = event.header(name.as_str(), value);
            }
        }
        match &self.due {
            None => {}
            Some(Due::After(delay)) => event = event.delay(*delay),
            Some(Due::At(time)) => {
                if let Some(time) = date(time, row)? {
                    event = event.deliver_at(time);
                }
            }
        }
        match (&self.payload, message) {
            (None, _) => Ok(event),
            // As it came, byte by byte.
            (Some(template), Some(message)) if is_payload(template) => {
                let Some(bytes) = message.payload() else { return Ok(event) };
                if payload == PayloadKind::Json && !self.has_content_type() {
                    event = event.header("content-type", "application/json");
                }
                Ok(event.bytes(bytes.to_vec()))
            }
            (Some(template), _) => match template.fill(row)? {
                Bson::Binary(binary) => Ok(event.bytes(binary.bytes)),
                value => event.json(&AsJson(&value)).map_err(|error| error.to_string()),
            },
        }
    }

    fn has_content_type(&self) -> bool {
        self.headers.iter().any(|(name, _)| name == "content-type")
    }
}

/// What is filled in as a time; nothing for null.
fn date(template: &Template, row: &Document) -> Result<Option<SystemTime>, String> {
    let time = Type::Date.convert(&template.fill(row)?);
    match time.map_err(|why| format!("the deliver_at of an event: {why}"))? {
        Bson::DateTime(time) => Ok(Some(time.to_system_time())),
        _ => Ok(None),
    }
}

/// What is filled in as bytes; nothing for null.
fn bytes(what: &str, template: &Template, row: &Document) -> Result<Option<Vec<u8>>, String> {
    match template.fill(row)? {
        Bson::Null => Ok(None),
        Bson::Binary(binary) => Ok(Some(binary.bytes)),
        value => match json::scalar(&value) {
            Some(text) => Ok(Some(text.into_bytes())),
            None => {
                Err(format!("the {what} of an event is {:.60}, and not a text", AsJson(&value).to_string()))
            }
        },
    }
}
