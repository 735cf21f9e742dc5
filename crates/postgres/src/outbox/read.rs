//! What there is to publish.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::check_topic;
use oncebox_core::store::{EventState, OutboxEntry, Ready, SHARDS, StoreResult, StoredEvent, headers_json};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::floors::Look;
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
/// shards, however many events there are; and they end after so many, at a topic that the last row names.
const READY: &str = "WITH RECURSIVE ready AS ( \
         (SELECT topic, shard, seq FROM oncebox_outbox \
          WHERE published_at IS NULL AND parked_at IS NULL AND held_until IS NULL AND topic >= $3 \
          ORDER BY topic, shard, seq LIMIT 1) \
         UNION ALL \
         SELECT n.topic, n.shard, n.seq FROM ready r CROSS JOIN LATERAL (SELECT o.topic, o.shard, o.seq FROM oncebox_outbox o \
             WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.held_until IS NULL \
                 AND (o.topic, o.shard) > (r.topic, r.shard) ORDER BY o.topic, o.shard, o.seq LIMIT 1) n), \
     held AS ( \
         (SELECT topic, shard, held_until FROM oncebox_outbox \
          WHERE held_until < 'infinity' AND topic >= $3 ORDER BY topic, shard, held_until LIMIT 1) \
         UNION ALL \
         SELECT n.topic, n.shard, n.held_until FROM held h CROSS JOIN LATERAL ( \
             SELECT o.topic, o.shard, o.held_until FROM oncebox_outbox o \
             WHERE o.held_until < 'infinity' AND (o.topic, o.shard) > (h.topic, h.shard) \
             ORDER BY o.topic, o.shard, o.held_until LIMIT 1) n) \
     SELECT topic, shard, seq FROM (SELECT * FROM ready LIMIT $2) r WHERE shard = ANY ($1) \
     UNION ALL SELECT topic, shard, NULL FROM (SELECT * FROM held LIMIT $2) h \
         WHERE shard = ANY ($1) AND held_until <= statement_timestamp() \
     UNION ALL SELECT min(topic), NULL, NULL FROM (\
         (SELECT topic FROM ready OFFSET $2 - 1 LIMIT 1) UNION ALL (SELECT topic FROM held OFFSET $2 - 1 LIMIT 1)) AS cut";

/// Of topics and shards that are known those that have ready events above their floor, and those with held events that are due.
const READY_ABOVE: &str = "WITH RECURSIVE held AS ( \
         (SELECT topic, shard, held_until FROM oncebox_outbox \
          WHERE held_until < 'infinity' ORDER BY topic, shard, held_until LIMIT 1) \
         UNION ALL \
         SELECT n.topic, n.shard, n.held_until FROM held h CROSS JOIN LATERAL ( \
             SELECT o.topic, o.shard, o.held_until FROM oncebox_outbox o \
             WHERE o.held_until < 'infinity' AND (o.topic, o.shard) > (h.topic, h.shard) \
             ORDER BY o.topic, o.shard, o.held_until LIMIT 1) n) \
     SELECT k.topic, k.shard, first.seq FROM unnest($3::text[], $4::int[], $5::bigint[]) AS k(topic, shard, floor) \
         CROSS JOIN LATERAL (SELECT o.seq FROM oncebox_outbox o WHERE o.topic = k.topic AND o.shard = k.shard \
             AND o.published_at IS NULL AND o.parked_at IS NULL AND o.held_until IS NULL AND o.seq > k.floor \
             ORDER BY o.seq LIMIT 1) AS first \
     UNION ALL SELECT topic, shard, NULL FROM (SELECT * FROM held LIMIT $2) h \
         WHERE shard = ANY ($1) AND held_until <= statement_timestamp()";

/// Who writes events, or has written some and not committed yet.
const WRITERS: &str = "SELECT DISTINCT virtualtransaction FROM pg_locks \
     WHERE locktype = 'relation' AND relation = 'oncebox_outbox'::regclass AND mode = 'RowExclusiveLock' \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()";

/// The topics and shards that have something to publish now.
pub(super) async fn ready_from(
    store: &PgStore,
    shards: &[u16],
    from: &str,
    topics: u16,
) -> StoreResult<Ready> {
    let doing = "looking for events";
    // One more than they can have, so that the last row is of another topic than the first.
    let most = i64::from(topics) * i64::from(SHARDS) + 1;
    let (floors, began) = (&store.inner.floors, Instant::now());
    let look = if from.is_empty() { floors.look(shards, began) } else { Look::Full(0) };
    let mut txn = store.begin_relay().await?;
    let query = match &look {
        Look::Full(_) => store.query(READY).bind(numbers(shards)).bind(most).bind(from),
        Look::Known(pairs) => {
            let topics: Vec<&str> = pairs.iter().map(|(topic, ..)| topic.as_str()).collect();
            let of_shards: Vec<i32> = pairs.iter().map(|(_, shard, _)| i32::from(*shard)).collect();
            let above: Vec<i64> = pairs.iter().map(|(.., floor)| *floor).collect();
            store.query(READY_ABOVE).bind(numbers(shards)).bind(most).bind(topics).bind(of_shards).bind(above)
        }
    };
    let asked = Instant::now();
    let rows = query.fetch_all(&mut *txn).await.context(doing)?;
    let took = asked.elapsed();
    if let Some(seen) = floors.wants_watch(began) {
        let writers = store.query(WRITERS).fetch_all(&mut *txn).await.context(doing)?;
        let writers = writers.iter().map(|row| row.try_get(0));
        floors.watched(seen, writers.collect::<sqlx::Result<_>>().context(doing)?);
    }
    txn.rollback().await;
    let (found, more_from) = found(&rows).context(doing)?;
    match look {
        // More topics than one look shows: their floors are not worth remembering.
        Look::Full(_) if more_from.is_some() || !from.is_empty() => floors.forget(),
        Look::Full(decided) => floors.looked(decided, shards, &found, took, Instant::now()),
        Look::Known(_) => {}
    }
    let places: BTreeSet<(String, u16)> = found.into_iter().map(|(topic, shard, _)| (topic, shard)).collect();
    Ok(Ready { places: places.into_iter().collect(), more_from })
}

/// A topic, a shard, and the number of the first ready event there, if there is one.
type Place = (String, u16, Option<i64>);

/// What a look has found, and where the next one goes on.
fn found(rows: &[PgRow]) -> sqlx::Result<(Vec<Place>, Option<String>)> {
    let (mut places, mut more_from) = (Vec::with_capacity(rows.len()), None);
    for row in rows {
        match (row.try_get(0)?, row.try_get(1)?) {
            (Some(topic), Some(number)) => places.push((topic, shard(number), row.try_get(2)?)),
            (cut, _) => more_from = cut,
        }
    }
    Ok((places, more_from))
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
    /// Where each of them begins.
    pub(super) floors: Vec<i64>,
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
    let shards = numbers(shards);
    let (floors, decided) = store.inner.floors.of(topic, &shards);
    let mut wanted = Wanted {
        topic: Arc::from(topic),
        floors,
        share: bound(events.div_ceil(shards.len().max(1))),
        shards,
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
    let numbers = rows.iter().map(|row| Ok((row.try_get(0)?, shard_of(row)?)));
    let numbers: Vec<(i64, u16)> = numbers.collect::<sqlx::Result<_>>().context("reading events")?;
    store.inner.floors.read(topic, &wanted.shards, decided, &numbers);
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
         FROM (SELECT o.* FROM unnest($2::int[], $6::bigint[]) AS s(shard, floor) CROSS JOIN LATERAL (SELECT ",
    event_columns!(),
    "        FROM oncebox_outbox o WHERE o.topic = $1 AND o.shard = s.shard AND o.seq > s.floor \
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
        .bind(&wanted.floors)
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
