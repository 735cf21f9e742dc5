//! What there is to publish.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::check_topic;
use oncebox_core::store::{EventState, OutboxEntry, StoreResult, StoredEvent, headers_json};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{numbers, shard, waiting};
use crate::classify::Context;
use crate::store::PgStore;
use crate::txn::PgTxn;

/// The columns that [`event`] reads, by their places.
macro_rules! event_columns {
    () => {
        "o.seq, o.id, o.key, o.payload, o.headers::text AS headers, \
         (date_part('epoch', o.created_at) * 1000)::bigint AS created_at_ms, o.causation_id, o.attempts, o.shard, \
         (date_part('epoch', o.deliver_at) * 1000)::bigint AS deliver_at_ms"
    };
}
pub(super) use event_columns;

/// The topics and shards with ready events by a loose walk over their index, and those with held events that are due by
/// another: the first one of a topic and shard is the one that is due first. Both are as long as there are topics and
/// shards, however many events there are.
const READY: &str = "WITH RECURSIVE ready AS ( \
         (SELECT topic, shard FROM oncebox_outbox \
          WHERE published_at IS NULL AND parked_at IS NULL AND held_until IS NULL ORDER BY topic, shard LIMIT 1) \
         UNION ALL \
         SELECT n.topic, n.shard FROM ready r CROSS JOIN LATERAL (SELECT o.topic, o.shard FROM oncebox_outbox o \
             WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.held_until IS NULL \
                 AND (o.topic, o.shard) > (r.topic, r.shard) ORDER BY o.topic, o.shard LIMIT 1) n), \
     held AS ( \
         (SELECT topic, shard, held_until FROM oncebox_outbox \
          WHERE held_until < 'infinity' ORDER BY topic, shard, held_until LIMIT 1) \
         UNION ALL \
         SELECT n.topic, n.shard, n.held_until FROM held h CROSS JOIN LATERAL ( \
             SELECT o.topic, o.shard, o.held_until FROM oncebox_outbox o \
             WHERE o.held_until < 'infinity' AND (o.topic, o.shard) > (h.topic, h.shard) \
             ORDER BY o.topic, o.shard, o.held_until LIMIT 1) n) \
     SELECT topic, shard FROM (SELECT topic, shard FROM ready LIMIT $2) r WHERE shard = ANY ($1) \
     UNION SELECT topic, shard FROM (SELECT * FROM held LIMIT $2) h \
         WHERE shard = ANY ($1) AND held_until <= statement_timestamp()";

/// More topics and shards than this are not looked at in one go.
const MAX_READY: i64 = 16 * 1024;

/// The topics and shards that have something to publish now.
pub(super) async fn ready(store: &PgStore, shards: &[u16]) -> StoreResult<Vec<(String, u16)>> {
    let doing = "looking for events";
    let mut txn = store.begin_relay().await?;
    let rows =
        store.query(READY).bind(numbers(shards)).bind(MAX_READY).fetch_all(&mut *txn).await.context(doing)?;
    let ready = rows.iter().map(|row| Ok((row.try_get(0)?, shard(row.try_get(1)?))));
    let ready = ready.collect::<sqlx::Result<_>>().context(doing);
    txn.rollback().await;
    ready
}

const CLOCK: &str = "SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint";

/// The database's clock.
pub(super) async fn clock_ms(store: &PgStore) -> StoreResult<i64> {
    let doing = "reading the clock";
    let mut txn = store.begin_relay().await?;
    let row = store.query(CLOCK).fetch_one(&mut *txn).await.context(doing)?;
    txn.rollback().await;
    row.try_get(0).context(doing)
}

/// What to read.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) topic: Arc<str>,
    pub(super) shards: Vec<i32>,
    /// The most events of one shard.
    pub(super) share: i64,
    pub(super) events: i64,
    pub(super) bytes: i64,
}

/// The next events of a topic.
pub(super) async fn next_events(
    store: &PgStore,
    topic: &str,
    shards: &[u16],
    bounds: BatchBounds,
) -> StoreResult<Vec<StoredEvent>> {
    let events = bounds.messages.max(1);
    let bound = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
    let mut wanted = Wanted {
        topic: Arc::from(topic),
        shards: numbers(shards),
        share: bound(events.div_ceil(shards.len().max(1))),
        events: bound(events),
        bytes: bound(bounds.bytes),
    };
    let mut txn = store.begin_relay().await?;
    let mut rows = fresh(store, &mut txn, &wanted).await?;
    if leaves_some_behind(&rows, &wanted).context("reading events")? {
        // Most of the events are in few shards.
        wanted.share = wanted.events;
        rows = fresh(store, &mut txn, &wanted).await?;
    }
    if rows.is_empty() {
        rows = waiting::around_held(store, &mut txn, &wanted).await?;
    }
    let (fit, unfit) = read(&rows, &wanted.topic).context("reading events")?;
    if !unfit.is_empty() {
        park_unfit(store, &mut txn, &unfit).await?;
    }
    txn.commit_own("reading events").await?;
    Ok(fit)
}

/// The way of nearly all events: nothing of this topic is held, and that is asked once. Sizes are those of the stored
/// values, so that nothing large is read for events that do not fit.
const FRESH: &str = concat!(
    "SELECT seq, id, key, payload, headers, created_at_ms, causation_id, attempts, shard, deliver_at_ms, bytes FROM ( \
         SELECT w.*, row_number() OVER in_order AS place, \
             sum(COALESCE(octet_length(w.payload), 0) + COALESCE(octet_length(w.key), 0) + octet_length(w.headers)) \
                 OVER in_order AS bytes \
         FROM (SELECT o.* FROM unnest($2::int[]) AS s(shard) CROSS JOIN LATERAL (SELECT ",
    event_columns!(),
    "        FROM oncebox_outbox o WHERE o.topic = $1 AND o.shard = s.shard \
                 AND o.published_at IS NULL AND o.parked_at IS NULL AND o.held_until IS NULL \
             ORDER BY o.seq LIMIT $3) AS o ORDER BY o.seq LIMIT $4) AS w \
         WINDOW in_order AS (ORDER BY w.seq ROWS UNBOUNDED PRECEDING)) AS bounded \
     WHERE (place = 1 OR bytes <= $5) \
         AND NOT EXISTS (SELECT FROM oncebox_outbox h WHERE h.topic = $1 AND h.held_until IS NOT NULL) \
     ORDER BY seq"
);

async fn fresh(store: &PgStore, txn: &mut PgTxn, wanted: &Wanted) -> StoreResult<Vec<PgRow>> {
    store
        .query(FRESH)
        .bind(&*wanted.topic)
        .bind(&wanted.shards)
        .bind(wanted.share)
        .bind(wanted.events)
        .bind(wanted.bytes)
        .fetch_all(&mut **txn)
        .await
        .context("reading events")
}

const PARK_UNFIT: &str = "UPDATE oncebox_outbox o \
     SET parked_at = clock_timestamp(), held_until = NULL, error = u.error \
     FROM unnest($1::bigint[], $2::text[]) AS u(seq, error) WHERE o.seq = u.seq";

async fn park_unfit(store: &PgStore, txn: &mut PgTxn, unfit: &[(i64, Unfit)]) -> StoreResult<()> {
    for (seq, why) in unfit {
        tracing::warn!(seq, why, "parked an event that cannot be published");
    }
    let (seqs, errors): (Vec<i64>, Vec<Unfit>) = unfit.iter().copied().unzip();
    store.query(PARK_UNFIT).bind(seqs).bind(errors).execute(&mut **txn).await.context("parking events")?;
    Ok(())
}

/// Whether a shard used up its share while the batch has room.
fn leaves_some_behind(rows: &[PgRow], wanted: &Wanted) -> sqlx::Result<bool> {
    let Some(last) = rows.last() else { return Ok(false) };
    let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    // Perhaps more would have fitted; but a batch that is half full is not worth a second look.
    let large_enough = last.try_get::<i64, _>(10)? > wanted.bytes / 2;
    if large_enough || count >= wanted.events || wanted.share >= wanted.events {
        return Ok(false);
    }
    let mut of_shard: HashMap<u16, i64> = HashMap::new();
    for row in rows {
        *of_shard.entry(shard_of(row)?).or_default() += 1;
    }
    Ok(of_shard.values().any(|count| *count >= wanted.share))
}

type FitAndUnfit = (Vec<StoredEvent>, Vec<(i64, Unfit)>);

fn read(rows: &[PgRow], topic: &Arc<str>) -> sqlx::Result<FitAndUnfit> {
    // Events that were written by a plain INSERT were never checked.
    let no_topic = check_topic(topic)
        .err()
        .map(|_| "its topic is not a valid name: 1 to 249 letters, digits, dots, underscores or dashes");
    let mut fit = Vec::with_capacity(rows.len());
    let mut unfit = Vec::new();
    for row in rows {
        let (event, unreadable) = event(row, topic)?;
        match no_topic.or(unreadable) {
            None => fit.push(event),
            Some(why) => unfit.push((event.seq, why)),
        }
    }
    Ok((fit, unfit))
}

/// Why an event cannot leave the outbox: its row says what no event can say.
pub(super) type Unfit = &'static str;

const UNREADABLE: Unfit = "its headers are neither a JSON object of texts nor an array of [name, text]";

/// The event of a row.
pub(super) fn event(row: &PgRow, topic: &Arc<str>) -> sqlx::Result<(StoredEvent, Option<Unfit>)> {
    let headers = headers_json::from_either(row.try_get(4)?);
    let unfit = headers.is_none().then_some(UNREADABLE);
    let bytes =
        |at: usize| row.try_get::<Option<&[u8]>, _>(at).map(|found| found.map(Bytes::copy_from_slice));
    let event = StoredEvent {
        seq: row.try_get(0)?,
        id: row.try_get(1)?,
        topic: Arc::clone(topic),
        key: bytes(2)?,
        payload: bytes(3)?,
        headers: headers.unwrap_or_default(),
        created_at_ms: row.try_get(5)?,
        deliver_at_ms: row.try_get(9)?,
        causation_id: row.try_get(6)?,
        attempts: row.try_get::<i32, _>(7)?.unsigned_abs(),
    };
    Ok((event, unfit))
}

/// The shard of the same row.
pub(super) fn shard_of(row: &PgRow) -> sqlx::Result<u16> {
    Ok(shard(row.try_get(8)?))
}

/// An event with its state. Headers that cannot be read are not shown; the error of such an event says so.
pub(super) fn entry(row: &PgRow) -> sqlx::Result<OutboxEntry> {
    let topic: Arc<str> = Arc::from(row.try_get::<&str, _>("topic")?);
    let (event, _) = event(row, &topic)?;
    let state = match row.try_get("state")? {
        "published" => EventState::Published,
        "parked" => EventState::Parked,
        "delayed" => EventState::Delayed,
        "held" => EventState::Held,
        _ => EventState::Pending,
    };
    Ok(OutboxEntry {
        event,
        shard: shard_of(row)?,
        consumer: row.try_get("consumer")?,
        tenant: row.try_get("tenant")?,
        state,
        state_at_ms: row.try_get("state_at_ms")?,
        error: row.try_get("error")?,
    })
}
