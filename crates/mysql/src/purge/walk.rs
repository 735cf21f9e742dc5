//! The way through the receipts, in the order of their keys.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use oncebox_core::store::{ErrorClass, PassEnd, PurgePass, PurgeProgress, Purged, StoreResult};
use sqlx::{AssertSqlSafe, Row};

use super::DOING;
use super::horizon::{self, Horizons, before, horizons};
use super::lease::{Lease, Place};
use crate::classify::Context;
use crate::quote::{push_bytes, text};
use crate::status::receipts_estimate;
use crate::store::MysqlStore;
use crate::txn::MysqlTxn;

/// Receipts that one step looks at: a few hundredths of a second.
const STEP_RECEIPTS: i64 = 2000;
/// How many times as long as it works a pass rests, so that the messages keep most of the server.
const REST_FACTOR: u32 = 4;
/// The longest rest; a lease lasts longer.
const MAX_REST: Duration = Duration::from_secs(30);
/// How often a step is tried that a batch was in the way of.
const MAX_TRIES: u32 = 5;
/// Up to here receipts are counted to tell how many there are; beyond, it is an estimate.
const MAX_COUNTED: u64 = 100_000;

const STEP_END: &str = "SELECT MAX(`key`), COUNT(*) FROM \
     (SELECT `key` FROM oncebox_inbox WHERE `key` > ? ORDER BY `key` LIMIT ?) AS step";

/// A pass on its way.
pub(super) struct Walk<'a> {
    store: &'a MysqlStore,
    pass: &'a PurgePass<'a>,
    horizons: Horizons,
    place: Place,
    total: u64,
    purged: Purged,
}

/// The keys that one step covers, and which of them may go, by consumer and ascending.
struct Step {
    end: Place,
    expired: BTreeMap<String, Vec<Vec<u8>>>,
}

impl<'a> Walk<'a> {
    /// From the beginning.
    pub(super) async fn new(store: &'a MysqlStore, pass: &'a PurgePass<'a>) -> StoreResult<Self> {
        let horizons = horizons(store, pass).await?;
        let mut txn = store.begin_aside().await?;
        let total = receipts_estimate(store, &mut txn, MAX_COUNTED).await.context(DOING)?;
        txn.rollback().await;
        Ok(Self { store, pass, horizons, place: Place::default(), total, purged: Purged::default() })
    }

    /// From where an earlier pass was left.
    pub(super) fn begin_at(&mut self, place: Place) {
        self.place = place;
    }

    /// Up to where it got.
    pub(super) fn into_place(self) -> Place {
        self.place
    }

    /// Counts what would go.
    pub(super) async fn count(&mut self) -> StoreResult<Purged> {
        while !self.pass.stop.is_cancelled() {
            let look = async {
                let mut txn = self.store.begin_aside().await?;
                let step = self.next_step(&mut txn).await?;
                txn.rollback().await;
                Ok(step)
            };
            let Some(step) = self.store.patiently(DOING, look).await? else {
                return Ok(self.ended(PassEnd::Finished));
            };
            let expired = step.expired.values().map(|keys| keys.len() as u64).sum();
            self.arrived(step.end, expired);
        }
        Ok(self.ended(PassEnd::Stopped))
    }

    /// Removes what may go. A batch that is under way may be in a step's way: then the step is tried again, a few times.
    pub(super) async fn remove(&mut self, lease: &Lease) -> StoreResult<Purged> {
        let mut tries = 0;
        while !self.pass.stop.is_cancelled() {
            let began = Instant::now();
            tries += 1;
            match self.store.patiently(DOING, self.step(lease)).await {
                Ok(Some((end, removed))) => {
                    tries = 0;
                    self.arrived(end, removed);
                }
                Ok(None) => return Ok(self.ended(PassEnd::Finished)),
                Err(error) if error.class == ErrorClass::Fenced => return Ok(self.ended(PassEnd::Elsewhere)),
                Err(error) if error.class == ErrorClass::Transient && tries < MAX_TRIES => {
                    tracing::debug!(%error, "a step of the purge is tried again");
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                biased;
                () = self.pass.stop.cancelled() => {}
                () = tokio::time::sleep((began.elapsed() * REST_FACTOR).min(MAX_REST)) => {}
            }
        }
        Ok(self.ended(PassEnd::Stopped))
    }

    /// One step: where it ends, and how many receipts it removed. `None` behind the last receipt.
    async fn step(&self, lease: &Lease) -> StoreResult<Option<(Place, u64)>> {
        let mut txn = self.store.begin_aside().await?;
        let Some(step) = self.next_step(&mut txn).await? else {
            txn.rollback().await;
            return Ok(None);
        };
        let mut removed = 0;
        for (consumer, keys) in &step.expired {
            let Some(horizon) = self.horizons.get(consumer) else { continue };
            removed += delete(&mut txn, consumer, *horizon, keys).await?;
        }
        txn.commit_after(&lease.renew(&step.end)).await.context_of_commit(DOING)?;
        Ok(Some((step.end, removed)))
    }

    /// Looks which receipts come next, and which of them may go. Locks nothing.
    async fn next_step(&self, txn: &mut MysqlTxn) -> StoreResult<Option<Step>> {
        let after = self.place.reached.as_slice();
        let end = self.store.query(STEP_END).bind(after).bind(STEP_RECEIPTS);
        let end = end.fetch_one(&mut **txn).await.context(DOING)?;
        let Some(reached) = end.try_get::<Option<Vec<u8>>, _>(0).context(DOING)? else { return Ok(None) };
        let looked_at: i64 = end.try_get(1).context(DOING)?;
        let done = self.place.done.saturating_add(looked_at.unsigned_abs());
        let mut expired: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for (consumer, horizon) in &self.horizons {
            let sql = expired_of(consumer, *horizon, after, &reached);
            let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut **txn).await.context(DOING)?;
            if !rows.is_empty() {
                let keys = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>();
                expired.insert(consumer.clone(), keys.context(DOING)?);
            }
        }
        Ok(Some(Step { end: Place { reached, done }, expired }))
    }

    fn arrived(&mut self, end: Place, removed: u64) {
        self.purged.receipts += removed;
        self.place = end;
        self.total = self.total.max(self.place.done);
        (self.pass.progress)(PurgeProgress { removed, done: self.place.done, total: self.total });
    }

    fn ended(&self, end: PassEnd) -> Purged {
        Purged { end, ..self.purged }
    }
}

/// The statement that finds which receipts of a consumer may go. A receipt whose message lies in the dead letters stays: replaying
/// the letter relies on it. Blanks at the end of an id or a tenant are no difference here, so that at most too many stay.
fn expired_of(consumer: &str, horizon: i64, after: &[u8], reached: &[u8]) -> String {
    let mut sql = format!(
        "SELECT i.`key` FROM oncebox_inbox AS i WHERE i.consumer = {} AND i.processed_at < {} AND NOT EXISTS (SELECT 1 \
             FROM oncebox_dead AS d WHERE d.consumer = i.consumer AND d.message_id = i.message_id AND d.tenant = i.tenant) \
         AND i.`key` > ",
        text(consumer),
        before(horizon)
    );
    push_bytes(&mut sql, after);
    sql.push_str(" AND i.`key` <= ");
    push_bytes(&mut sql, reached);
    sql.push_str(" ORDER BY i.`key`");
    sql
}

/// Deletes by key, after the horizon is written. A receipt that a replay has made young meanwhile stays.
async fn delete(txn: &mut MysqlTxn, consumer: &str, micros: i64, keys: &[Vec<u8>]) -> StoreResult<u64> {
    let write = horizon::write(consumer, micros);
    sqlx::raw_sql(AssertSqlSafe(write)).execute(&mut **txn).await.context("writing down the horizon")?;
    let mut sql = format!("DELETE FROM oncebox_inbox WHERE processed_at < {} AND `key` IN (", before(micros));
    for (at, key) in keys.iter().enumerate() {
        if at > 0 {
            sql.push(',');
        }
        push_bytes(&mut sql, key);
    }
    sql.push(')');
    let done =
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **txn).await.context("removing old receipts")?;
    Ok(done.rows_affected())
}
