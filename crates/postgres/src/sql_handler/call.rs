//! The call of a handler's function with a whole batch.

use std::collections::BTreeSet;

use oncebox_sql::Param;
use oncebox_sql::{Handler, PayloadKind};

use super::{events, mentions};

/// The types of a handler's parameters; behind those of the message come, for `each`, its place in the batch and, where
/// events are written, the consumer.
pub(super) fn parameter_types(handler: &Handler, payload: PayloadKind) -> String {
    let payload = match payload {
        PayloadKind::Json => "jsonb",
        PayloadKind::Text => "text",
        PayloadKind::Bytes => "bytea",
    };
    let consumer = if events::are_written(handler) { ",text" } else { "" };
    match handler {
        Handler::Each(_) => {
            format!("text,text,{payload},jsonb,text,integer,bigint,timestamptz,text,bigint{consumer}")
        }
        Handler::Batch(_) => {
            format!("text[],text[],{payload}[],jsonb[],text[],integer[],bigint[],bigint[],text[]{consumer}")
        }
    }
}

/// Which columns the statements can see, or their events.
pub(super) fn used(handler: &Handler) -> BTreeSet<Param> {
    match handler {
        Handler::Each(steps) => {
            let cause = if events::are_written(handler) { events::CAUSE.as_slice() } else { &[] };
            steps.iter().flat_map(|step| step.sql.params()).chain(cause.iter().copied()).collect()
        }
        Handler::Batch(steps) => steps.iter().flat_map(|step| mentions::columns(step.sql.source())).collect(),
    }
}

/// Which columns a call has a place for. The id is always there, to count the messages by.
pub(super) fn columns(handler: &Handler) -> Vec<Param> {
    match handler {
        Handler::Batch(_) => Param::ALL.to_vec(),
        Handler::Each(_) => {
            let used = used(handler);
            Param::ALL.into_iter().filter(|param| *param == Param::Id || used.contains(param)).collect()
        }
    }
}

/// The inner query fixes the order of the calls: OFFSET 0 keeps the planner from dissolving it, and a function that is not
/// parallel safe keeps it on one process.
pub(super) fn each(name: &str, handler: &Handler, payload: PayloadKind) -> String {
    let columns = columns(handler);
    let arrays: Vec<_> = columns
        .iter()
        .zip(1..)
        .map(|(param, at)| format!("${at}::{}", array_type(*param, payload)))
        .collect();
    let names: Vec<_> = columns.iter().map(|param| format!("c{}", param.index())).collect();
    let arguments: Vec<_> = Param::ALL
        .into_iter()
        .map(|param| {
            if columns.contains(&param) {
                each_argument(param)
            } else {
                format!("NULL::{}", scalar_type(param, payload))
            }
        })
        .collect();
    let consumer =
        if events::are_written(handler) { format!(", ${}::text", columns.len() + 1) } else { String::new() };
    format!(
        "SELECT count(pg_temp.{name}({arguments}, m.ord{consumer})) FROM (SELECT * FROM unnest({arrays}) WITH ORDINALITY \
         AS u({names}, ord) ORDER BY ord OFFSET 0) AS m",
        arguments = arguments.join(", "),
        arrays = arrays.join(", "),
        names = names.join(", "),
    )
}

fn each_argument(param: Param) -> String {
    let column = format!("m.c{}", param.index());
    match param {
        Param::Headers => format!("COALESCE({column}, '{{}}')"),
        Param::Timestamp => format!("timestamptz 'epoch' + {column} * interval '1 millisecond'"),
        _ => column,
    }
}

/// Every array has its place, also if it is NULL.
pub(super) fn batch(name: &str, handler: &Handler, payload: PayloadKind) -> String {
    let mut arrays: Vec<_> = Param::ALL
        .into_iter()
        .map(|param| format!("${}::{}", param.index(), array_type(param, payload)))
        .collect();
    if events::are_written(handler) {
        arrays.push(format!("${}::text", arrays.len() + 1));
    }
    format!("SELECT pg_temp.{name}({})::bigint", arrays.join(", "))
}

/// What is sent. A timestamp travels in milliseconds.
fn array_type(param: Param, payload: PayloadKind) -> String {
    match param {
        Param::Timestamp => "bigint[]".to_owned(),
        _ => format!("{}[]", scalar_type(param, payload)),
    }
}

fn scalar_type(param: Param, payload: PayloadKind) -> &'static str {
    match (param, payload) {
        (Param::Payload, PayloadKind::Bytes) => "bytea",
        (Param::Payload, PayloadKind::Json) | (Param::Headers, _) => "jsonb",
        (Param::Partition, _) => "integer",
        (Param::Offset, _) => "bigint",
        (Param::Timestamp, _) => "timestamptz",
        _ => "text",
    }
}
