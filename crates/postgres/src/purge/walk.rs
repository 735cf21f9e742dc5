//! Reading the receipts page by page.

use std::collections::BTreeSet;
use std::time::Instant;

use oncebox_core::store::{ErrorClass, PassEnd, StoreResult};
use sqlx::{AssertSqlSafe, Row};

use super::horizon::RELATION;
use super::lease::{Lease, Place};
use super::{Horizons, Pass};
use crate::classify::Context;
use crate::store::PgStore;

/// Pages per transaction: some 5,000 receipts, a few hundredths of a second.
const STEP_PAGES: i64 = 64;

/// The tables that hold receipts: one, or the partitions.
const TABLES: &str = "SELECT c.oid::regclass::text, pg_relation_size(c.oid) / current_setting('block_size')::bigint \
     FROM pg_class c WHERE c.relkind = 'r' AND (c.oid = to_regclass($1) \
         OR c.oid IN (SELECT relid FROM pg_partition_tree(to_regclass($1)))) \
     ORDER BY c.oid";

/// Where the receipts are, and which of them may go.
pub(crate) struct Receipts {
    /// The table, as SQL writes it.
    pub(crate) table: String,
    /// Whether the receipt `i` may go by the horizon `h`. One whose message lies in the dead letters stays: replaying the
    /// letter relies on it.
    pub(crate) removable: String,
}

impl Receipts {
    /// In oncebox's own table.
    pub(crate) fn own() -> Self {
        let removable = "i.consumer = h.consumer AND i.processed_at < h.before AND NOT EXISTS (SELECT FROM oncebox_dead d \
             WHERE d.consumer = i.consumer AND d.message_id = i.message_id AND d.tenant = i.tenant)";
        Self { table: "oncebox_inbox".to_owned(), removable: removable.to_owned() }
    }
}

/// Pages of a table, from one to before another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stretch {
    table: String,
    first: i64,
    end: i64,
}

/// Looks at the pages that an earlier pass has left, or at all. A table that cannot be read does not keep the others from
/// being looked at; its error is what remains.
pub(super) async fn walk(
    store: &PgStore,
    pass: &mut Pass<'_>,
    horizons: &Horizons,
    receipts: &Receipts,
) -> StoreResult<PassEnd> {
    let tables = store.patiently("listing the receipts", tables(store, receipts)).await?;
    let left_at = pass.lease.as_ref().and_then(|lease| lease.left_at.as_ref());
    let stretches = stretches(&tables, left_at);
    let mut before = steps_before(&tables, left_at);
    pass.done = before;
    pass.total = before + stretches.iter().map(steps).sum::<u64>();
    let mut trouble = None;
    for stretch in &stretches {
        let mut first = stretch.first;
        while first < stretch.end {
            if pass.is_stopped() {
                return Ok(PassEnd::Stopped);
            }
            let began = Instant::now();
            let step = step(store, receipts, stretch, first, horizons, pass.lease.as_ref());
            let removed = match store.patiently("purging", step).await {
                Ok(removed) => removed,
                Err(error) if error.class == ErrorClass::Away => return Err(error),
                Err(error) if error.class == ErrorClass::Fenced => return Ok(PassEnd::Elsewhere),
                Err(error) => {
                    tracing::warn!(table = stretch.table, page = first, %error, "could not purge a table of receipts");
                    trouble.get_or_insert(error);
                    break;
                }
            };
            pass.done += 1;
            pass.removed(removed);
            first += STEP_PAGES;
            pass.rest_after(began).await;
        }
        before += steps(stretch);
        pass.done = before;
    }
    pass.at_the_end = true;
    trouble.map_or(Ok(PassEnd::Finished), Err)
}

async fn tables(store: &PgStore, receipts: &Receipts) -> StoreResult<Vec<(String, i64)>> {
    let doing = "listing the receipts";
    let mut txn = store.begin_aside().await?;
    let rows = store.query(TABLES).bind(&receipts.table).fetch_all(&mut *txn).await.context(doing)?;
    txn.rollback().await;
    let tables = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    tables.collect::<sqlx::Result<_>>().context(doing)
}

/// Removes what may go from some pages, or counts it.
async fn step(
    store: &PgStore,
    receipts: &Receipts,
    stretch: &Stretch,
    first: i64,
    horizons: &Horizons,
    lease: Option<&Lease>,
) -> StoreResult<u64> {
    let (table, removable) = (&stretch.table, &receipts.removable);
    let end = stretch.end.min(first + STEP_PAGES);
    let pages = format!("i.ctid >= '({first},0)'::tid AND i.ctid < '({end},0)'::tid");
    let mut txn = store.begin_aside().await?;
    let Some(lease) = lease else {
        let count =
            format!("SELECT count(*) FROM ONLY {table} i, {RELATION} h WHERE {pages} AND {removable}");
        let row = horizons
            .bind(sqlx::query(AssertSqlSafe(count)).persistent(false))
            .fetch_one(&mut *txn)
            .await
            .context("counting old receipts")?;
        txn.rollback().await;
        let counted: i64 = row.try_get(0).context("counting old receipts")?;
        return Ok(counted.unsigned_abs());
    };
    let doing = "removing old receipts";
    let delete = format!(
        "WITH gone AS (DELETE FROM ONLY {table} i USING {RELATION} h WHERE {pages} AND {removable} \
         RETURNING h.consumer) SELECT consumer, count(*) FROM gone GROUP BY consumer"
    );
    let gone = horizons
        .bind(sqlx::query(AssertSqlSafe(delete)).persistent(false))
        .fetch_all(&mut *txn)
        .await
        .context(doing)?;
    let mut consumers = BTreeSet::new();
    let mut removed = 0;
    for row in &gone {
        consumers.insert(row.try_get::<String, _>(0).context(doing)?);
        removed += row.try_get::<i64, _>(1).context(doing)?.unsigned_abs();
    }
    let consumers: Vec<String> = consumers.into_iter().collect();
    horizons.write(store, &mut txn, &consumers).await?;
    let next = Place { table: table.clone(), page: end };
    lease.renew(store, &mut txn, Some(&next)).await?;
    txn.commit_own(doing).await?;
    Ok(removed)
}

/// The pages that an earlier pass has left, or all of them. What is written behind the last page meanwhile is too young to go.
fn stretches(tables: &[(String, i64)], left_at: Option<&Place>) -> Vec<Stretch> {
    let at = left_at.and_then(|place| tables.iter().position(|(name, _)| *name == place.table)).unwrap_or(0);
    let first = |table: &str| left_at.filter(|place| place.table == table).map_or(0, |place| place.page);
    let stretch =
        |(table, end): &(String, i64)| Stretch { table: table.clone(), first: first(table), end: *end };
    tables[at..].iter().map(stretch).filter(|stretch| stretch.first < stretch.end).collect()
}

fn steps(stretch: &Stretch) -> u64 {
    steps_for(stretch.end - stretch.first)
}

/// How many steps a pass that began at the beginning has made when it is here.
fn steps_before(tables: &[(String, i64)], left_at: Option<&Place>) -> u64 {
    let Some(place) = left_at else { return 0 };
    let Some(at) = tables.iter().position(|(name, _)| *name == place.table) else { return 0 };
    let whole: u64 = tables[..at].iter().map(|(_, pages)| steps_for(*pages)).sum();
    whole + steps_for(place.page.min(tables[at].1))
}

fn steps_for(pages: i64) -> u64 {
    u64::try_from(pages).unwrap_or_default().div_ceil(STEP_PAGES.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Vec<(String, i64)> {
        [("a", 100), ("b", 200), ("c", 0)].map(|(name, pages)| (name.to_owned(), pages)).to_vec()
    }

    fn from(table: &str, page: i64) -> Vec<(String, i64, i64)> {
        let place = Place { table: table.to_owned(), page };
        stretches(&tables(), Some(&place)).into_iter().map(|s| (s.table, s.first, s.end)).collect()
    }

    #[test]
    fn a_pass_goes_on_where_the_last_one_was_left() {
        let at = |table: &str, first, end| (table.to_owned(), first, end);
        assert_eq!(from("a", 64), [at("a", 64, 100), at("b", 0, 200)]);
        assert_eq!(from("b", 64), [at("b", 64, 200)]);
        assert_eq!(from("b", 999), [], "the table has become shorter");
        assert_eq!(from("gone", 64), [at("a", 0, 100), at("b", 0, 200)]);
        assert_eq!(stretches(&tables(), None).len(), 2);
        assert_eq!(steps_before(&tables(), Some(&Place { table: "b".to_owned(), page: 64 })), 3);
    }
}
