//! The way through the receipts, in the order of their keys.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use oncebox_core::store::{ErrorClass, PassEnd, PurgePass, PurgeProgress, Purged, StoreResult};
use sqlx::mysql::MySqlRow;
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

/// Where the receipts are, and which of them may go.
pub(crate) struct Receipts {
    /// The table, as SQL writes it.
    pub(crate) table: String,
    /// The column that they are walked over by, and the same as bytes.
    pub(crate) mark: String,
    pub(crate) mark_bytes: String,
    pub(crate) marked_by: Mark,
    /// The column that says whose they are, if not all are of one consumer or a mark belongs to one.
    pub(crate) consumer: Option<String>,
    /// The column of the tenant, where several tenants may have receipts at one mark.
    pub(crate) tenant: Option<String>,
    /// The column that says how old they are.
    pub(crate) time: String,
    /// How the letters are found that keep a receipt.
    pub(crate) letters: Letters,
}

/// How the letters of a consumer are compared with its receipts.
pub(crate) enum Letters {
    /// Whether the letter `d` is one of the message of the receipt `i`, by the index of the letters.
    ByIndex(String),
    /// What of the letter `d` must be the same as what of the receipt `i`, where the letters' columns as they are do not tell.
    /// All of them are read once for a step, into a temporary table with an index of its own.
    ByValue(Vec<(String, String)>),
}

impl Letters {
    /// What is joined to the receipts `i`, and the condition that no letter keeps one.
    fn none_keeps(&self, consumer: &str) -> (String, String) {
        let letters = format!("FROM oncebox_dead AS d WHERE d.consumer = {}", text(consumer));
        match self {
            Self::ByIndex(same) => (String::new(), format!("NOT EXISTS (SELECT 1 {letters} AND {same})")),
            Self::ByValue(values) => {
                let columns = values.iter().enumerate();
                let selected: Vec<_> = columns
                    .clone()
                    .map(|(nth, (of_letter, _))| format!("{of_letter} AS oncebox_{nth}"))
                    .collect();
                let same: Vec<_> =
                    columns.map(|(nth, (_, of_receipt))| format!("k.oncebox_{nth} = {of_receipt}")).collect();
                let join = format!(
                    " LEFT JOIN (SELECT DISTINCT {} {letters}) AS k ON {}",
                    selected.join(", "),
                    same.join(" AND ")
                );
                (join, "k.oncebox_0 IS NULL".to_owned())
            }
        }
    }
}

/// What the receipts are walked over by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Bytes.
    Bytes,
    /// Text in UTF-8.
    Text,
}

impl Mark {
    /// That a column is behind a mark. Before the first receipt there is none.
    pub(crate) fn behind(self, column: &str, mark: Option<&[u8]>) -> String {
        mark.map_or_else(|| "TRUE".to_owned(), |mark| format!("{column} > {}", self.literal(mark)))
    }

    /// That a column is not behind a mark.
    pub(crate) fn up_to(self, column: &str, mark: &[u8]) -> String {
        format!("{column} <= {}", self.literal(mark))
    }

    /// A mark in a statement.
    pub(crate) fn literal(self, mark: &[u8]) -> String {
        let mut literal = if self == Self::Text && !mark.is_empty() { "_utf8mb4 " } else { "" }.to_owned();
        push_bytes(&mut literal, mark);
        literal
    }
}

impl Receipts {
    /// In oncebox's own table. Blanks at the end of an id or a tenant are no difference there, so that at most too many stay.
    pub(crate) fn own() -> Self {
        Self {
            table: "oncebox_inbox".to_owned(),
            mark: "`key`".to_owned(),
            mark_bytes: "`key`".to_owned(),
            marked_by: Mark::Bytes,
            consumer: Some("consumer".to_owned()),
            tenant: None,
            time: "processed_at".to_owned(),
            letters: Letters::ByIndex("d.message_id = i.message_id AND d.tenant = i.tenant".to_owned()),
        }
    }

    /// The statement that finds where a step ends, and how many receipts it looks at.
    fn step_end(&self, after: Option<&[u8]>) -> String {
        let Self { table, mark, .. } = self;
        format!(
            "SELECT {}, COUNT(*) FROM (SELECT {mark} FROM {table} WHERE {} ORDER BY {mark} LIMIT {STEP_RECEIPTS}) AS step",
            self.mark_bytes.replace(mark, &format!("MAX({mark})")),
            self.marked_by.behind(mark, after)
        )
    }

    /// The statement that finds which receipts of a consumer may go. A receipt whose message lies in the dead letters stays:
    /// replaying the letter relies on it.
    fn expired_of(&self, consumer: &str, horizon: i64, after: Option<&[u8]>, reached: &[u8]) -> String {
        let Self { table, mark, time, letters, .. } = self;
        let (join, none_keeps) = letters.none_keeps(consumer);
        format!(
            "SELECT {}, {} FROM {table} AS i{join} WHERE {} AND i.{time} < {} AND {none_keeps} AND {} AND {} ORDER BY i.{mark}",
            self.mark_bytes,
            self.tenant.as_deref().map_or_else(|| "NULL".to_owned(), in_bytes),
            self.of_consumer(consumer),
            before(horizon),
            self.marked_by.behind(mark, after),
            self.marked_by.up_to(mark, reached)
        )
    }

    /// The statement that removes receipts. One that a replay has made young meanwhile stays.
    fn delete(&self, consumer: &str, horizon: i64, expired: &[Expired]) -> String {
        let Self { table, mark, time, .. } = self;
        let marks: Vec<_> = expired.iter().map(|one| self.marked_by.literal(&one.mark)).collect();
        let mut sql = format!(
            "DELETE FROM {table} WHERE {time} < {} AND {} AND {mark} IN ({})",
            before(horizon),
            self.of_consumer(consumer),
            marks.join(",")
        );
        if let Some(tenant) = &self.tenant {
            let tenants =
                expired.iter().map(|one| Mark::Text.literal(one.tenant.as_deref().unwrap_or_default()));
            let pairs: Vec<_> =
                marks.iter().zip(tenants).map(|(mark, tenant)| format!("({mark},{tenant})")).collect();
            sql.push_str(&format!(" AND ({mark}, {tenant}) IN ({})", pairs.join(",")));
        }
        sql
    }

    /// Byte for byte, whatever the column's collation holds to be the same; and so that an index can be used.
    fn of_consumer(&self, consumer: &str) -> String {
        let Some(column) = &self.consumer else { return "TRUE".to_owned() };
        let name = text(consumer);
        format!("{column} = {name} AND {} = CAST({name} AS BINARY)", in_bytes(column))
    }
}

/// A text column as its bytes in UTF-8, whatever its character set and its collation are.
fn in_bytes(column: &str) -> String {
    format!("CAST(CONVERT({column} USING utf8mb4) AS BINARY)")
}

/// A receipt that may go.
struct Expired {
    mark: Vec<u8>,
    tenant: Option<Vec<u8>>,
}

impl Expired {
    fn read(row: &MySqlRow) -> sqlx::Result<Self> {
        Ok(Self { mark: row.try_get_unchecked(0)?, tenant: row.try_get_unchecked(1)? })
    }
}

/// A pass on its way.
pub(super) struct Walk<'a> {
    store: &'a MysqlStore,
    pass: &'a PurgePass<'a>,
    receipts: Receipts,
    horizons: Horizons,
    place: Place,
    total: u64,
    purged: Purged,
}

/// The keys that one step covers, and which of them may go, by consumer and ascending.
struct Step {
    end: Place,
    expired: BTreeMap<String, Vec<Expired>>,
}

impl<'a> Walk<'a> {
    /// From the beginning.
    pub(super) async fn new(
        store: &'a MysqlStore,
        pass: &'a PurgePass<'a>,
        receipts: Receipts,
    ) -> StoreResult<Self> {
        let horizons = horizons(store, pass).await?;
        let mut txn = store.begin_aside().await?;
        let total = receipts_estimate(store, &mut txn, MAX_COUNTED).await.context(DOING)?;
        txn.rollback().await;
        let (place, purged) = (Place::default(), Purged::default());
        Ok(Self { store, pass, receipts, horizons, place, total, purged })
    }

    /// The table that it walks over.
    pub(super) fn table(&self) -> &str {
        &self.receipts.table
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
                let mut txn = self.store.begin_in_utc().await?;
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
        let mut txn = self.store.begin_in_utc().await?;
        let Some(step) = self.next_step(&mut txn).await? else {
            txn.rollback().await;
            return Ok(None);
        };
        let mut removed = 0;
        for (consumer, keys) in &step.expired {
            let Some(horizon) = self.horizons.get(consumer) else { continue };
            removed += self.delete(&mut txn, consumer, *horizon, keys).await?;
        }
        txn.commit_after(&lease.renew(&step.end)).await.context_of_commit(DOING)?;
        Ok(Some((step.end, removed)))
    }

    /// Looks which receipts come next, and which of them may go. Locks nothing.
    async fn next_step(&self, txn: &mut MysqlTxn) -> StoreResult<Option<Step>> {
        let after = self.place.reached.as_deref();
        let end = sqlx::raw_sql(AssertSqlSafe(self.receipts.step_end(after)));
        let end = end.fetch_one(&mut **txn).await.context(DOING)?;
        let Some(reached) = end.try_get_unchecked::<Option<Vec<u8>>, _>(0).context(DOING)? else {
            return Ok(None);
        };
        let looked_at: i64 = end.try_get(1).context(DOING)?;
        let done = self.place.done.saturating_add(looked_at.unsigned_abs());
        let mut expired: BTreeMap<String, Vec<Expired>> = BTreeMap::new();
        for (consumer, horizon) in &self.horizons {
            let sql = self.receipts.expired_of(consumer, *horizon, after, &reached);
            let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut **txn).await.context(DOING)?;
            if !rows.is_empty() {
                let keys = rows.iter().map(Expired::read).collect::<sqlx::Result<_>>();
                expired.insert(consumer.clone(), keys.context(DOING)?);
            }
        }
        Ok(Some(Step { end: Place { reached: Some(reached), done }, expired }))
    }

    /// Deletes by key, after the horizon is written.
    async fn delete(
        &self,
        txn: &mut MysqlTxn,
        consumer: &str,
        micros: i64,
        keys: &[Expired],
    ) -> StoreResult<u64> {
        let write = horizon::write(consumer, micros);
        sqlx::raw_sql(AssertSqlSafe(write)).execute(&mut **txn).await.context("writing down the horizon")?;
        let delete = sqlx::raw_sql(AssertSqlSafe(self.receipts.delete(consumer, micros, keys)));
        let done = delete.execute(&mut **txn).await.context("removing old receipts")?;
        Ok(done.rows_affected())
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
