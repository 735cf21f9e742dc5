//! Handlers that write events: what `oncebox_emit` must know of the cause. It looks at variables of the session.

use oncebox_core::outbox::current_consumer;
use oncebox_sql::{Handler, Param};

/// What an event of `each` takes from its message.
pub(super) const CAUSE: [Param; 3] = [Param::Id, Param::Headers, Param::Tenant];

/// Whether a statement mentions the outbox. One that only talks about it costs some microseconds more.
pub(super) fn are_written(handler: &Handler) -> bool {
    handler.steps().iter().any(|step| {
        let sql = step.sql.source().to_ascii_lowercase();
        sql.contains("oncebox_emit") || sql.contains("oncebox_outbox")
    })
}

/// The name of the consumer that runs the handler, if the engine runs it.
pub(super) fn consumer() -> String {
    current_consumer().as_ref().map_or_else(String::new, |consumer| consumer.as_str().to_owned())
}

/// The statement that says which message events follow from. Each value is an expression.
pub(super) fn tell_cause(consumer: &str, id: &str, tenant: &str, headers: &str) -> String {
    let header = |name: &str| {
        let value = format!("JSON_EXTRACT({headers}, '$.\"{name}\"')");
        format!("IF(JSON_TYPE({value}) = 'STRING', JSON_UNQUOTE({value}), NULL)")
    };
    format!(
        "SET @oncebox_consumer = {consumer}, @oncebox_causation_id = {id}, @oncebox_tenant = {tenant}, \
         @oncebox_traceparent = {}, @oncebox_correlation_id = {}",
        header("traceparent"),
        header("correlation-id")
    )
}

/// A batch follows from many messages, so its events name only the consumer.
pub(super) fn tell_consumer(consumer: &str) -> String {
    format!("SET @oncebox_consumer = {consumer}, {NO_CAUSE}")
}

const NO_CAUSE: &str = "@oncebox_causation_id = NULL, @oncebox_tenant = NULL, @oncebox_traceparent = NULL, \
     @oncebox_correlation_id = NULL";

/// Nobody else's events on this connection follow from what was.
pub(super) fn forget_cause() -> String {
    tell_consumer("NULL")
}
