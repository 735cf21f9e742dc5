//! The columns of a batch, from its messages.

use std::collections::BTreeSet;

use oncebox_core::config::{Handler, PayloadKind};
use oncebox_core::statement::Param;
use oncebox_core::{Failure, Message, headers_json, reject};
use sqlx::Arguments;
use sqlx::postgres::PgArguments;

use super::jsonb::Jsonb;
use super::{function, payload};

/// Years 1 to 9999; a time outside of it is a producer's mistake, and PostgreSQL may not be able to hold it.
const TIMES_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// Which columns a handler gets, and which of them must be as they should be.
#[derive(Debug)]
pub(super) struct Columns {
    sent: Vec<Param>,
    used: BTreeSet<Param>,
    payload: PayloadKind,
}

impl Columns {
    pub(super) fn new(handler: &Handler, payload: PayloadKind) -> Self {
        let sent = function::columns(handler);
        let used = match handler {
            Handler::Each(steps) => steps.iter().flat_map(|step| step.statement.params()).collect(),
            Handler::Batch(steps) => {
                let mentions = |param: &&Param| {
                    let mut sources = steps.iter().map(|step| step.statement.source().to_lowercase());
                    sources.any(|source| source.contains(param.name()))
                };
                sent.iter().filter(mentions).copied().collect()
            }
        };
        Self { sent, used, payload }
    }

    /// The arguments of the call. A message that has something PostgreSQL cannot hold is rejected, if a statement uses it.
    pub(super) fn arguments(&self, fresh: &[Message]) -> Result<PgArguments, Failure> {
        let mut arguments = PgArguments::default();
        for param in &self.sent {
            self.add(&mut arguments, *param, fresh)?;
        }
        Ok(arguments)
    }

    fn add(&self, arguments: &mut PgArguments, param: Param, fresh: &[Message]) -> Result<(), Failure> {
        let added = match param {
            Param::Id => arguments.add(column(fresh, |m| m.id().as_str())),
            Param::Key => arguments.add(
                self.checked(param, fresh, |m| m.key().map(|key| payload::text("key", key)).transpose())?,
            ),
            Param::Payload => match self.payload {
                PayloadKind::Json => arguments.add(self.checked(param, fresh, |m| {
                    m.payload().map(|json| payload::json(json).map(|json| Jsonb(json.into()))).transpose()
                })?),
                PayloadKind::Text => arguments.add(self.checked(param, fresh, |m| {
                    m.payload().map(|text| payload::text("payload", text)).transpose()
                })?),
                PayloadKind::Bytes => arguments.add(column(fresh, Message::payload)),
            },
            Param::Headers => arguments.add(self.headers(fresh)?),
            Param::Topic => arguments.add(column(fresh, Message::topic)),
            Param::Partition => arguments.add(column(fresh, |m| m.record().partition)),
            Param::Offset => arguments.add(column(fresh, |m| m.record().offset)),
            Param::Timestamp => {
                arguments.add(self.checked(param, fresh, |m| match m.record().timestamp_ms {
                    Some(ms) if !TIMES_MS.contains(&ms) => {
                        Err(format!("the timestamp {ms} ms is out of range"))
                    }
                    ms => Ok(ms),
                })?)
            }
            Param::Tenant => arguments.add(column(fresh, |m| m.tenant().as_str())),
        };
        added.map_err(Failure::of_batch)
    }

    /// `None` if no message has any, which is quicker for both sides.
    fn headers(&self, fresh: &[Message]) -> Result<Option<Vec<Option<Jsonb<'static>>>>, Failure> {
        if fresh.iter().all(|message| message.record().headers.is_empty()) {
            return Ok(None);
        }
        let checked = self.checked(Param::Headers, fresh, |message| {
            let headers = &message.record().headers;
            if headers.iter().any(|(name, _)| name.contains('\0')) {
                return Err("the name of a header contains NUL, which jsonb refuses".to_owned());
            }
            Ok(Some(Jsonb(headers_json::to_object(headers).into())))
        });
        checked.map(Some)
    }

    /// A column of values that may be wrong. What no statement uses becomes NULL then.
    fn checked<'m, T>(
        &self,
        param: Param,
        fresh: &'m [Message],
        value: impl Fn(&'m Message) -> Result<Option<T>, String>,
    ) -> Result<Vec<Option<T>>, Failure> {
        let judge = |(at, message)| match value(message) {
            Err(why) if self.used.contains(&param) => Err(Failure { at: Some(at), error: reject(why) }),
            Err(_) => Ok(None),
            Ok(value) => Ok(value),
        };
        fresh.iter().enumerate().map(judge).collect()
    }
}

fn column<'m, T>(fresh: &'m [Message], value: impl Fn(&'m Message) -> T) -> Vec<T> {
    fresh.iter().map(value).collect()
}
