//! Handlers that write events: what the database must know of the cause.

use oncebox_sql::Handler;
use oncebox_sql::Param;

/// What an event of `each` takes from its message besides the id.
pub(super) const CAUSE: [Param; 2] = [Param::Headers, Param::Tenant];

/// Whether a statement mentions the outbox. One that only talks about it costs some microseconds more.
pub(super) fn are_written(handler: &Handler) -> bool {
    handler.steps().iter().any(|step| {
        let sql = step.sql.source().to_ascii_lowercase();
        sql.contains("oncebox_emit") || sql.contains("oncebox_outbox")
    })
}

/// The settings that `oncebox_emit` looks at. A batch follows from many messages, so its events name only the consumer.
pub(super) fn tell_cause(handler: &Handler) -> &'static str {
    match handler {
        Handler::Each(_) => {
            "PERFORM set_config('oncebox.consumer', $11, true), set_config('oncebox.causation_id', $1, true), \
             set_config('oncebox.tenant', $9, true), set_config('oncebox.traceparent', \
             CASE WHEN jsonb_typeof($4 -> 'traceparent') = 'string' THEN $4 ->> 'traceparent' ELSE '' END, true), \
             set_config('oncebox.correlation_id', \
             CASE WHEN jsonb_typeof($4 -> 'correlation-id') = 'string' THEN $4 ->> 'correlation-id' ELSE '' END, true);\n"
        }
        Handler::Batch(_) => "PERFORM set_config('oncebox.consumer', $10, true);\n",
    }
}
