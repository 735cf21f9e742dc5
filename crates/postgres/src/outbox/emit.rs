//! Writing events into a transaction that is somebody else's.

use std::sync::atomic::{AtomicBool, Ordering};

use oncebox_core::error::Error;
use oncebox_core::outbox::{Emit, Event, EventRow, emit_all};
use oncebox_core::store::{ErrorClass, StoreResult};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use super::emit_as_begun;
use crate::classify::Context;
use crate::store::PgStore;

impl Emit<PgStore> for PgConnection {
    async fn emit(&mut self, event: Event) -> Result<Uuid, Error> {
        emit_all::<PgStore>(self, std::slice::from_ref(&event)).await?;
        Ok(event.id())
    }

    async fn emit_all(&mut self, events: &[Event]) -> Result<(), Error> {
        emit_all::<PgStore>(self, events).await
    }
}

/// Whether some handler emits after it has changed its search path or its role. Nobody pays for such handlers until the first
/// one is seen.
static HANDLERS_MOVE: AtomicBool = AtomicBool::new(false);

/// Writes events in their order.
pub(super) async fn write_events(conn: &mut PgConnection, events: &[EventRow<'_>]) -> StoreResult<()> {
    let doing = "writing events";
    if events.is_empty() {
        return Ok(());
    }
    if HANDLERS_MOVE.load(Ordering::Relaxed) {
        let message = emit_as_begun::message(events)?;
        sqlx::raw_sql(AssertSqlSafe(message)).execute(conn).await.context_of_user(doing)?;
        return Ok(());
    }
    match insert(conn, events).await.context_of_user(doing) {
        // The outbox was not found, or may not be written: perhaps only from where the handler is now. The transaction is
        // lost; the next one writes its events with the path and the role that it began with.
        Err(refused) if refused.class == ErrorClass::Environment => {
            HANDLERS_MOVE.store(true, Ordering::Relaxed);
            Err(refused.with_class(ErrorClass::Transient))
        }
        written => written,
    }
}

/// ORDER BY, because `seq` is given out in the order in which the rows arrive.
const WRITE: &str = "INSERT INTO oncebox_outbox \
         (id, topic, key, payload, headers, consumer, tenant, causation_id, deliver_at) \
     SELECT e.id, e.topic, e.key, e.payload, e.headers::json, e.consumer, e.tenant, e.causation_id, \
         timestamptz 'epoch' + e.deliver_at_ms * interval '1 millisecond' \
     FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[]) \
         WITH ORDINALITY AS e(id, topic, key, payload, headers, consumer, tenant, causation_id, deliver_at_ms, place) \
     ORDER BY e.place";

/// For the one event that most handlers write.
const WRITE_ONE: &str = "INSERT INTO oncebox_outbox \
         (id, topic, key, payload, headers, consumer, tenant, causation_id, deliver_at) \
     VALUES ($1, $2, $3, $4, $5::text::json, $6, $7, $8, timestamptz 'epoch' + $9::bigint * interval '1 millisecond')";

async fn insert(conn: &mut PgConnection, events: &[EventRow<'_>]) -> sqlx::Result<()> {
    // Nobody says here whether a pooler stands in between. Who has named statements on this connection can take one more.
    let named = conn.cached_statements_size() > 0;
    let insert = match events {
        [one] => sqlx::query(WRITE_ONE)
            .bind(one.id)
            .bind(one.topic)
            .bind(one.key)
            .bind(one.payload)
            .bind(&one.headers)
            .bind(&one.consumer)
            .bind(&one.tenant)
            .bind(&one.causation_id)
            .bind(one.deliver_at_ms),
        many => sqlx::query(WRITE)
            .bind(column(many, |event| event.id))
            .bind(column(many, |event| event.topic))
            .bind(column(many, |event| event.key))
            .bind(column(many, |event| event.payload))
            .bind(column(many, |event| event.headers.as_str()))
            .bind(column(many, |event| event.consumer.as_deref()))
            .bind(column(many, |event| event.tenant.as_deref()))
            .bind(column(many, |event| event.causation_id.as_deref()))
            .bind(column(many, |event| event.deliver_at_ms)),
    };
    insert.persistent(named).execute(conn).await.map(drop)
}

fn column<'e, T>(events: &'e [EventRow<'_>], value: impl Fn(&'e EventRow<'_>) -> T) -> Vec<T> {
    events.iter().map(value).collect()
}
