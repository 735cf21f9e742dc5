//! What there is to publish.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::check_topic;
use oncebox_core::store::{EventState, OutboxEntry, Ready, StoreResult, StoredEvent, headers_json};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::{STATEMENT_NUMBERS, events_by_seq, fetch, list, shard, waiting};
use crate::classify::Context;
use crate::quote::text;
use crate::store::MysqlStore;
use crate::time::in_ms;
use crate::txn::MysqlTxn;

/// The columns that [`event`] reads, by their places.
macro_rules! event_columns {
    () => {
        concat!(
            "o.seq, o.id, o.`key`, o.payload, o.headers, ",
            $crate::time::in_ms!("o.created_at"),
            " AS created_at_ms, o.causation_id, o.attempts, o.shard, ",
            $crate::time::in_ms!("o.deliver_at"),
            " AS deliver_at_ms"
        )
    };
}
pub(super) use event_columns;

/// The topics and shards that have something to publish now.
pub(super) async fn ready_from(
    store: &MysqlStore,
    shards: &[u16],
    from: &str,
    most: u16,
) -> StoreResult<Ready> {
    let doing = "looking for events";
    if shards.is_empty() {
        return Ok(Ready::default());
    }
    let mut txn = store.begin().await?;
    let (mut found, cut) = topics(&mut txn, shards, from, most, next_ready).await.context(doing)?;
    let (held, held_cut) = topics(&mut txn, shards, from, most, next_due).await.context(doing)?;
    txn.rollback().await;
    found.extend(held);
    let mut places: Vec<_> = found.into_iter().filter(|at| at.now).map(|at| (at.topic, at.shard)).collect();
    places.sort_unstable();
    places.dedup();
    Ok(Ready { places, more_from: cut.into_iter().chain(held_cut).min() })
}

/// A topic in a shard that an index knows, and whether it has something to publish now.
pub(super) struct At {
    pub(super) topic: String,
    pub(super) shard: u16,
    now: bool,
}

/// Walks along an index from one topic to the next, in all shards at once: as long as there are topics, however many events
/// there are. The server would not: only MySQL knows how to skip, and neither does where the places come from another row.
/// Ends after so many topics of a shard, and also says at which topic then.
pub(super) async fn topics(
    conn: &mut MySqlConnection,
    shards: &[u16],
    from: &str,
    most: u16,
    next: fn(u16, &str, &str) -> String,
) -> sqlx::Result<(Vec<At>, Option<String>)> {
    let mut found = Vec::new();
    let mut places: Vec<(u16, String)> = shards.iter().map(|shard| (*shard, from.to_owned())).collect();
    let mut is_behind = ">=";
    // One more, so that the last one is another than the first.
    for _ in 0..=most {
        if places.is_empty() {
            break;
        }
        let parts: Vec<String> = places.iter().map(|(shard, topic)| next(*shard, is_behind, topic)).collect();
        is_behind = ">";
        places.clear();
        for row in fetch(conn, parts.join(" UNION ALL ")).await? {
            let at = At {
                shard: shard(row.try_get(0)?),
                topic: row.try_get(1)?,
                now: row.try_get::<i64, _>(2)? != 0,
            };
            places.push((at.shard, at.topic.clone()));
            found.push(at);
        }
    }
    Ok((found, places.into_iter().map(|(_, topic)| topic).min()))
}

/// The next topic of a shard with a ready event.
pub(super) fn next_ready(shard: u16, is_behind: &str, topic: &str) -> String {
    format!(
        "(SELECT {shard}, topic, 1 FROM oncebox_outbox FORCE INDEX (oncebox_outbox_ready) \
         WHERE ready_shard = {shard} AND topic {is_behind} {} ORDER BY topic LIMIT 1)",
        text(topic)
    )
}

/// The next topic of a shard with a held event. The first one is the one that is due first.
fn next_due(shard: u16, is_behind: &str, topic: &str) -> String {
    format!(
        "(SELECT {shard}, topic, held_until <= UTC_TIMESTAMP(6) FROM oncebox_outbox FORCE INDEX (oncebox_outbox_due) \
         WHERE held_shard = {shard} AND topic {is_behind} {} ORDER BY topic, held_until LIMIT 1)",
        text(topic)
    )
}

/// The database's clock.
pub(super) async fn clock_ms(store: &MysqlStore) -> StoreResult<i64> {
    let doing = "reading the clock";
    let mut txn = store.begin().await?;
    let row = store.query(concat!("SELECT ", in_ms!("UTC_TIMESTAMP(6)"))).fetch_one(&mut *txn).await;
    txn.rollback().await;
    row.and_then(|row| row.try_get(0)).context(doing)
}

/// What to read.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'a> {
    pub(super) topic: &'a str,
    pub(super) shards: &'a [u16],
    /// The most events of one shard.
    pub(super) share: usize,
    pub(super) events: usize,
    pub(super) bytes: i64,
}

/// An event that may be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) seq: i64,
    pub(super) bytes: i64,
    pub(super) shard: u16,
}

/// The next events of a topic.
pub(super) async fn next_events(
    store: &MysqlStore,
    topic: &str,
    shards: &[u16],
    bounds: BatchBounds,
) -> StoreResult<Vec<StoredEvent>> {
    let doing = "reading events";
    if shards.is_empty() {
        return Ok(Vec::new());
    }
    let events = bounds.messages.max(1);
    let bytes = i64::try_from(bounds.bytes).unwrap_or(i64::MAX);
    let mut wanted = Wanted { topic, shards, share: events.div_ceil(shards.len()), events, bytes };
    let mut txn = store.begin().await?;
    let mut chosen = fresh(&mut txn, &wanted).await.context(doing)?;
    if chosen.as_ref().is_some_and(|chosen| leaves_some_behind(chosen, &wanted)) {
        // Most of the events are in few shards.
        wanted.share = wanted.events;
        chosen = fresh(&mut txn, &wanted).await.context(doing)?;
    }
    let chosen = match chosen {
        Some(chosen) => chosen,
        None => waiting::around_held(&mut txn, &mut wanted).await?,
    };
    let rows = read_events(&mut txn, &fitting(&chosen, wanted.bytes)).await.context(doing)?;
    let (fit, unfit) = read(&rows, topic).context(doing)?;
    if !unfit.is_empty() {
        park_unfit(&mut txn, &unfit).await?;
    }
    txn.commit_own(doing).await?;
    Ok(fit)
}

/// The way of nearly all events: nothing of this topic is held, and that is asked along. `None` if something is.
async fn fresh(conn: &mut MySqlConnection, wanted: &Wanted<'_>) -> sqlx::Result<Option<Vec<Candidate>>> {
    let held = format!(
        "(SELECT -1 AS seq, 0 AS bytes, 0 AS shard FROM oncebox_outbox FORCE INDEX (oncebox_outbox_due) \
         WHERE held_shard IN ({}) AND topic = {} LIMIT 1)",
        list(wanted.shards),
        text(wanted.topic)
    );
    let ready = oldest_ready(wanted, CANDIDATE);
    let sql = format!("{held} UNION ALL {ready} ORDER BY seq LIMIT {}", wanted.events);
    let rows = fetch(conn, sql).await?;
    let candidates: Vec<Candidate> = rows.iter().map(candidate).collect::<sqlx::Result<_>>()?;
    let some_held = candidates.first().is_some_and(|first| first.seq < 0);
    Ok((!some_held).then_some(candidates))
}

/// What [`candidate`] reads.
pub(super) const CANDIDATE: &str = "seq, bytes, shard";

/// The oldest ready events of each shard, up to its share.
pub(super) fn oldest_ready(wanted: &Wanted<'_>, columns: &str) -> String {
    let topic = text(wanted.topic);
    let part = |shard: &u16| {
        format!(
            "(SELECT {columns} FROM oncebox_outbox FORCE INDEX (oncebox_outbox_ready) \
             WHERE ready_shard = {shard} AND topic = {topic} ORDER BY seq LIMIT {})",
            wanted.share
        )
    };
    wanted.shards.iter().map(part).collect::<Vec<_>>().join(" UNION ALL ")
}

pub(super) fn candidate(row: &MySqlRow) -> sqlx::Result<Candidate> {
    Ok(Candidate { seq: row.try_get(0)?, bytes: row.try_get(1)?, shard: shard(row.try_get(2)?) })
}

/// Whether a shard used up its share while the batch has room.
fn leaves_some_behind(chosen: &[Candidate], wanted: &Wanted<'_>) -> bool {
    // Perhaps more would have fitted; but a batch that is half full is not worth a second look.
    let bytes = chosen.iter().fold(0_i64, |sum, event| sum.saturating_add(event.bytes));
    if bytes > wanted.bytes / 2 || chosen.len() >= wanted.events || wanted.share >= wanted.events {
        return false;
    }
    let mut of_shard: HashMap<u16, usize> = HashMap::new();
    for event in chosen {
        *of_shard.entry(event.shard).or_default() += 1;
    }
    of_shard.values().any(|count| *count >= wanted.share)
}

/// The first ones, as many as fit. One always does.
fn fitting(chosen: &[Candidate], most: i64) -> Vec<i64> {
    let mut bytes = 0_i64;
    let fits = |event: &&Candidate| {
        bytes = bytes.saturating_add(event.bytes);
        bytes <= most
    };
    let count = chosen.iter().take_while(fits).count().max(1);
    chosen.iter().take(count).map(|event| event.seq).collect()
}

async fn read_events(conn: &mut MySqlConnection, seqs: &[i64]) -> sqlx::Result<Vec<MySqlRow>> {
    let mut rows = Vec::with_capacity(seqs.len());
    for part in seqs.chunks(STATEMENT_NUMBERS) {
        let sql = format!(
            concat!(
                "SELECT ",
                event_columns!(),
                " FROM {} WHERE o.published_at IS NULL AND o.parked_at IS NULL ORDER BY o.seq"
            ),
            events_by_seq(part)
        );
        rows.append(&mut fetch(conn, sql).await?);
    }
    Ok(rows)
}

async fn park_unfit(txn: &mut MysqlTxn, unfit: &[(i64, Unfit)]) -> StoreResult<()> {
    let doing = "parking events";
    for (seq, why) in unfit {
        tracing::warn!(seq, why, "parked an event that cannot be published");
    }
    let seqs: Vec<i64> = unfit.iter().map(|(seq, _)| *seq).collect();
    let keys = waiting::lock_held(txn, &seqs).await.context(doing)?;
    for (seq, why) in unfit {
        let sql = format!(
            "UPDATE oncebox_outbox SET parked_at = UTC_TIMESTAMP(6), held_until = NULL, error = {} WHERE seq = {seq} \
             AND published_at IS NULL AND parked_at IS NULL",
            text(why)
        );
        super::change(txn, sql).await.context(doing)?;
    }
    waiting::follow(txn, keys.into_values().collect()).await.context(doing)
}

type FitAndUnfit = (Vec<StoredEvent>, Vec<(i64, Unfit)>);

fn read(rows: &[MySqlRow], topic: &str) -> sqlx::Result<FitAndUnfit> {
    // The table takes no others, unless somebody has taken its constraint away.
    let no_topic = check_topic(topic)
        .err()
        .map(|_| "its topic is not a valid name: 1 to 249 letters, digits, dots, underscores or dashes");
    let topic = Arc::from(topic);
    let mut fit = Vec::with_capacity(rows.len());
    let mut unfit = Vec::new();
    for row in rows {
        let (event, unreadable) = event(row, &topic)?;
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
const NO_ID: Unfit = "its id is not a UUID";

/// The event of a row.
pub(super) fn event(row: &MySqlRow, topic: &Arc<str>) -> sqlx::Result<(StoredEvent, Option<Unfit>)> {
    let id = row.try_get::<&str, _>(1)?.parse::<Uuid>().ok();
    let headers = headers_json::from_either(row.try_get(4)?);
    let unfit = headers.is_none().then_some(UNREADABLE).or(id.is_none().then_some(NO_ID));
    let bytes =
        |at: usize| row.try_get::<Option<&[u8]>, _>(at).map(|found| found.map(Bytes::copy_from_slice));
    let event = StoredEvent {
        seq: row.try_get(0)?,
        id: id.unwrap_or_default(),
        topic: Arc::clone(topic),
        key: bytes(2)?,
        payload: bytes(3)?,
        headers: headers.unwrap_or_default(),
        // A date of zeros, which some settings allow, has none.
        created_at_ms: row.try_get::<Option<i64>, _>(5)?.unwrap_or_default(),
        deliver_at_ms: row.try_get(9)?,
        causation_id: row.try_get(6)?,
        attempts: row.try_get::<i32, _>(7)?.unsigned_abs(),
    };
    Ok((event, unfit))
}

/// The shard of the same row.
pub(super) fn shard_of(row: &MySqlRow) -> sqlx::Result<u16> {
    Ok(shard(row.try_get(8)?))
}

/// An event with its state. Headers that cannot be read are not shown; the error of such an event says so.
pub(super) fn entry(row: &MySqlRow) -> sqlx::Result<OutboxEntry> {
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
