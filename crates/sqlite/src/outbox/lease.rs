//! Which relay publishes which shards.

use std::time::Duration;

use oncebox_core::store::{Lease, Leases, SHARDS, StoreResult};
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

use super::json;
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::{after, now, now_moved};

const SEEN: &str = concat!(
    "INSERT INTO oncebox_relay (relay, name, seen_until) VALUES (?1, ?2, ",
    now_moved!("?3"),
    ") ON CONFLICT (relay) DO UPDATE SET name = excluded.name, seen_until = excluded.seen_until"
);

const ALIVE: &str = concat!("SELECT count(*) FROM oncebox_relay WHERE seen_until > ", now!());

// Also what has expired meanwhile: nobody took it, so nobody else has published anything of it.
const RENEW: &str =
    concat!("UPDATE oncebox_shard SET leased_until = ", now_moved!("?2"), " WHERE relay = ?1");

const TAKE: &str = concat!(
    "UPDATE oncebox_shard SET relay = ?1, epoch = epoch + 1, leased_until = ",
    now_moved!("?2"),
    " WHERE shard IN (
        SELECT shard FROM oncebox_shard WHERE relay IS NULL OR leased_until <= ",
    now!(),
    "   ORDER BY shard
        LIMIT max(0, ?3 - (SELECT count(*) FROM oncebox_shard WHERE relay = ?1)))"
);

const HELD: &str = "SELECT shard, epoch FROM oncebox_shard WHERE relay = ?1 ORDER BY shard";

/// Renews and takes, in a transaction that holds the write lock: relays never see each other half-way.
pub(super) async fn lease(
    store: &SqliteStore,
    relay: Uuid,
    name: &str,
    duration: Duration,
) -> StoreResult<Leases> {
    let doing = format!("leasing shards for relay {name}");
    let mut txn = store.begin().await?;
    let leases = lease_in(&mut txn, &relay.to_string(), name, duration).await.context(&doing)?;
    txn.commit_own(&doing).await?;
    Ok(leases)
}

async fn lease_in(
    conn: &mut SqliteConnection,
    relay: &str,
    name: &str,
    duration: Duration,
) -> sqlx::Result<Leases> {
    let until = after(duration);
    sqlx::query(SEEN).bind(relay).bind(name).bind(&until).execute(&mut *conn).await?;
    sqlx::query(RENEW).bind(relay).bind(&until).execute(&mut *conn).await?;
    let alive: i64 = sqlx::query(ALIVE).fetch_one(&mut *conn).await?.try_get(0)?;
    // A lease of no time at all is over at once; its relay still counts itself.
    let fair_share = usize::from(SHARDS).div_ceil(usize::try_from(alive).unwrap_or_default().max(1));
    let take = sqlx::query(TAKE).bind(relay).bind(&until).bind(fair_share as i64);
    take.execute(&mut *conn).await?;
    let rows = sqlx::query(HELD).bind(relay).fetch_all(conn).await?;
    let held = rows.iter().map(|row| Ok(Lease { shard: row.try_get(0)?, epoch: row.try_get(1)? }));
    Ok(Leases { held: held.collect::<sqlx::Result<_>>()?, fair_share })
}

// The epoch stays: whoever takes the shard next raises it.
const RELEASE: &str = "UPDATE oncebox_shard SET relay = NULL, leased_until = NULL
     WHERE relay = ?1 AND shard IN (SELECT value FROM json_each(?2))";

const FORGET: &str = "DELETE FROM oncebox_relay WHERE relay = ?1";

/// Gives shards back.
pub(super) async fn release_shards(
    store: &SqliteStore,
    relay: Uuid,
    shards: &[u16],
    leaving: bool,
) -> StoreResult<()> {
    let doing = "releasing shards";
    let relay = relay.to_string();
    let mut txn = store.begin().await?;
    let release = sqlx::query(RELEASE).bind(&relay).bind(json(shards.iter().copied()));
    release.execute(&mut *txn).await.context(doing)?;
    if leaving {
        sqlx::query(FORGET).bind(&relay).execute(&mut *txn).await.context(doing)?;
    }
    txn.commit_own(doing).await
}
