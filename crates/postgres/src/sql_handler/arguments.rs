//! The columns of a batch, from its messages.

use std::collections::BTreeSet;

use oncebox_core::error::{BoxError, reject};
use oncebox_core::inbox::Failure;
use oncebox_core::message::Message;
use oncebox_core::outbox::current_consumer;
use oncebox_core::store::headers_json;
use oncebox_sql::Param;
use oncebox_sql::{Handler, PayloadKind};
use sqlx::Arguments;
use sqlx::postgres::PgArguments;

use super::jsonb::Jsonb;
use super::{call, events, payload};

/// Years 1 to 9999; a time outside of it is a producer's mistake, and PostgreSQL may not be able to hold it.
const TIMES_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// Which columns a handler gets.
#[derive(Debug)]
pub(super) struct Columns {
    /// Those that the call has a place for.
    sent: Vec<Param>,
    /// Those that a statement can see; the others are NULL.
    used: BTreeSet<Param>,
    payload: PayloadKind,
    /// Whether the call also has a place for the consumer.
    consumer: bool,
}

impl Columns {
    pub(super) fn new(handler: &Handler, payload: PayloadKind) -> Self {
        let consumer = events::are_written(handler);
        Self { sent: call::columns(handler), used: call::used(handler), payload, consumer }
    }

    /// The arguments of the call. A message that has something PostgreSQL cannot hold is rejected, if a statement uses it.
    pub(super) fn arguments(&self, fresh: &[Message]) -> Result<PgArguments, Failure> {
        let mut arguments = PgArguments::default();
        for param in &self.sent {
            self.add(&mut arguments, *param, fresh)?;
        }
        if self.consumer {
            let consumer = current_consumer();
            let name = consumer.as_ref().map_or("", |consumer| consumer.as_str());
            arguments.add(name).map_err(Failure::of_batch)?;
        }
        Ok(arguments)
    }

    fn add(&self, arguments: &mut PgArguments, param: Param, fresh: &[Message]) -> Result<(), Failure> {
        let used = self.used.contains(&param);
        let added = match param {
            // Without any other column it still says how many messages there are.
            Param::Id => arguments.add(column(fresh, |m| m.id().as_str())),
            Param::Key => arguments
                .add(checked(used, fresh, |m| m.key().map(|key| payload::text("key", key)).transpose())?),
            Param::Payload => self.add_payload(arguments, used, fresh)?,
            Param::Headers => arguments.add(headers_of(used, fresh)?),
            Param::Topic => arguments.add(used.then(|| column(fresh, Message::topic))),
            Param::Partition => arguments.add(used.then(|| column(fresh, |m| m.record().partition))),
            Param::Offset => arguments.add(used.then(|| column(fresh, |m| m.record().offset))),
            Param::Timestamp => arguments.add(checked(used, fresh, |m| match m.record().timestamp_ms {
                Some(ms) if !TIMES_MS.contains(&ms) => Err(format!("the timestamp {ms} ms is out of range")),
                ms => Ok(ms),
            })?),
            Param::Tenant => arguments.add(used.then(|| column(fresh, |m| m.tenant().as_str()))),
        };
        added.map_err(Failure::of_batch)
    }

    fn add_payload(
        &self,
        arguments: &mut PgArguments,
        used: bool,
        fresh: &[Message],
    ) -> Result<Result<(), BoxError>, Failure> {
        Ok(match self.payload {
            PayloadKind::Json => arguments.add(checked(used, fresh, |m| {
                m.payload().map(|json| payload::json(json).map(|json| Jsonb(json.into()))).transpose()
            })?),
            PayloadKind::Text => arguments.add(checked(used, fresh, |m| {
                m.payload().map(|text| payload::text("payload", text)).transpose()
            })?),
            PayloadKind::Bytes => arguments.add(used.then(|| column(fresh, Message::payload))),
        })
    }
}

/// `None` if no message has any, which is quicker for both sides.
fn headers_of(used: bool, fresh: &[Message]) -> Result<Option<Vec<Option<Jsonb<'static>>>>, Failure> {
    if fresh.iter().all(|message| message.record().headers.is_empty()) {
        return Ok(None);
    }
    checked(used, fresh, |message| {
        let headers = &message.record().headers;
        if headers.iter().any(|(name, _)| name.contains('\0')) {
            return Err("the name of a header contains NUL, which jsonb refuses".to_owned());
        }
        Ok(Some(Jsonb(headers_json::to_object(headers).into())))
    })
}

/// A column of values that PostgreSQL may not be able to hold: that rejects the message. `None` if nobody looks at it.
fn checked<'m, T>(
    used: bool,
    fresh: &'m [Message],
    value: impl Fn(&'m Message) -> Result<Option<T>, String>,
) -> Result<Option<Vec<Option<T>>>, Failure> {
    if !used {
        return Ok(None);
    }
    let judge = |(at, message)| value(message).map_err(|why| Failure { at: Some(at), error: reject(why) });
    fresh.iter().enumerate().map(judge).collect::<Result<_, _>>().map(Some)
}

fn column<'m, T>(fresh: &'m [Message], value: impl Fn(&'m Message) -> T) -> Vec<T> {
    fresh.iter().map(value).collect()
}
