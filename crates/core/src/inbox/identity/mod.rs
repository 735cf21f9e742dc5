//! Where the id and the tenant of a message are read from.
//!
//! A [`Selector`] names one place in a record; [`Identity`] reads the id and the tenant and turns the record into a
//! [`Message`](crate::message::Message). A record without the id that its selector asks for is [`Unfit`]: it never gets a made-up
//! id, because then no copy of it could be recognised.

mod parts;
mod pointer;
mod selector;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use crate::message::{Message, Record};
use crate::names::{MessageId, NameError, Tenant};
pub use parts::{Parts, PartsError};
use selector::read_json;
pub use selector::{SelectError, Selector, SelectorSyntaxError};

/// The largest record that is handed to a database. Checked first, so that a hostile or broken producer costs neither
/// memory in the store's driver nor a failing transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest key, in bytes.
    pub key_bytes: usize,
    /// The most headers.
    pub header_count: usize,
    /// The most bytes of all header names and values together.
    pub header_bytes: usize,
    /// The longest payload, in bytes.
    pub payload_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            key_bytes: 64 * 1024,
            header_count: 256,
            header_bytes: 256 * 1024,
            payload_bytes: 16 * 1024 * 1024,
        }
    }
}

impl Limits {
    /// What is too large about a record, with its size and the limit; `None` if nothing is.
    #[must_use]
    pub fn exceeded_by(&self, record: &Record) -> Option<String> {
        let bytes = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        let (key, payload) = (bytes(&record.key), bytes(&record.payload));
        if key > self.key_bytes {
            return Some(format!("the key has {key} bytes, more than the limit of {}", self.key_bytes));
        }
        if payload > self.payload_bytes {
            return Some(format!(
                "the payload has {payload} bytes, more than the limit of {}",
                self.payload_bytes
            ));
        }
        let count = record.headers.len();
        if count > self.header_count {
            return Some(format!("there are {count} headers, more than the limit of {}", self.header_count));
        }
        let headers = record.headers.byte_len();
        (headers > self.header_bytes).then(|| {
            format!("the headers have {headers} bytes, more than the limit of {}", self.header_bytes)
        })
    }
}

/// How the records of one consumer get their id and their tenant.
///
/// ```
/// use oncebox::Selector;
/// use oncebox::message::Record;
/// use oncebox::settings::Identity;
///
/// let identity = Identity::new(Selector::Header("event_id".into()), None);
/// let unfit = identity.identify(Record::at("orders", 0, 7)).unwrap_err();
/// assert_eq!(unfit.reason, "the message has no id: no header `event_id`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Where the id is.
    pub id: Selector,
    /// Where the tenant is; without it all messages share the tenant `""`.
    pub tenant: Option<Selector>,
    /// What a record must not exceed.
    pub limits: Limits,
}

/// A record that cannot become a message. It is for the dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// The record as delivered.
    pub record: Record,
    /// Why, for the log and the dead letter.
    pub reason: String,
    /// Its id, if that could be read.
    pub id: Option<MessageId>,
    /// Its tenant, if that could be read.
    pub tenant: Option<Tenant>,
}

type Read = Result<String, SelectError>;

impl Identity {
    /// With the default [`Limits`].
    #[must_use]
    pub fn new(id: Selector, tenant: Option<Selector>) -> Self {
        Self { id, tenant, limits: Limits::default() }
    }

    /// Reads id and tenant and checks the limits.
    ///
    /// A record without the tenant its selector asks for is unfit too: under another tenant its id would mean something
    /// else.
    ///
    /// # Errors
    /// The record, with what is wrong about it. Boxed, so that the good case stays small.
    pub fn identify(&self, record: Record) -> Result<Message, Box<Unfit>> {
        if let Some(reason) = self.limits.exceeded_by(&record) {
            let (id, tenant) = self.despite_its_size(&record);
            return Err(Box::new(Unfit { record, reason, id, tenant }));
        }
        let (id, tenant) = self.read(&record);
        let id = checked("id", id, MessageId::new);
        let tenant =
            tenant.map_or_else(|| Ok(Tenant::none()), |tenant| checked("tenant", tenant, Tenant::new));
        match (id, tenant) {
            (Ok(id), Ok(tenant)) => Ok(Message::new(id, tenant, record)),
            (Err(reason), tenant) => Err(Box::new(Unfit { record, reason, id: None, tenant: tenant.ok() })),
            (Ok(id), Err(reason)) => Err(Box::new(Unfit { record, reason, id: Some(id), tenant: None })),
        }
    }

    fn read(&self, record: &Record) -> (Read, Option<Read>) {
        // Where both are in the payload they share one pass over it.
        match (&self.id, &self.tenant) {
            (Selector::Json(id), Some(Selector::Json(tenant))) => match read_json(record, [id, tenant]) {
                Ok([id, tenant]) => (id, Some(tenant)),
                Err(e) => (Err(e.clone()), Some(Err(e))),
            },
            (Selector::All(parts), Some(Selector::Json(tenant))) => parts.select_with(record, Some(tenant)),
            (id, tenant) => (id.select(record), tenant.as_ref().map(|tenant| tenant.select(record))),
        }
    }

    /// An operator finds a dead letter by its id, so try; but do not parse a payload that is too large.
    fn despite_its_size(&self, record: &Record) -> (Option<MessageId>, Option<Tenant>) {
        let parsable =
            record.payload.as_ref().is_none_or(|payload| payload.len() <= self.limits.payload_bytes);
        let attempt = |selector: &Selector| {
            if parsable || !selector.reads_payload() { selector.select(record).ok() } else { None }
        };
        let id = attempt(&self.id).and_then(|text| MessageId::new(text).ok());
        let tenant = match &self.tenant {
            None => Some(Tenant::none()),
            Some(selector) => attempt(selector).and_then(|text| Tenant::new(text).ok()),
        };
        (id, tenant)
    }
}

fn checked<T>(what: &str, read: Read, make: impl Fn(String) -> Result<T, NameError>) -> Result<T, String> {
    match read {
        Ok(text) => make(text).map_err(|e| e.to_string()),
        Err(e) => Err(format!("the message has no {what}: {e}")),
    }
}
