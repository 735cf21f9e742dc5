//! From an adopted table to oncebox's own: copied page by page while others write, then switched at once.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    Adopt, CopiedPage, CopiedReceipt, CopyFrom, ErrorClass, PageMark, StoreError, StoreResult, Switched,
};
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use super::claim::stored_id;
use super::{Table, describe};
use crate::classify::Context;
use crate::quote::identifier;
use crate::store::PgStore;

/// Pages of the table that one step reads: some thousand rows.
const STEP_PAGES: i64 = 64;

/// What the table is called after the switch.
const SUFFIX: &str = "_adopted";

const DOING: &str = "copying receipts";

/// Copies the rows of some pages.
pub(super) async fn copy_receipts(
    store: &PgStore,
    from: CopyFrom<'_>,
    page: &PageMark,
) -> StoreResult<CopiedPage> {
    let source = Source::of(store, from).await?;
    store
        .patiently(DOING, async {
            let mut txn = store.begin_aside().await?;
            let copied = source.copy(store, &mut txn, page, None, from.dry_run).await?;
            if from.dry_run {
                txn.rollback().await;
            } else {
                txn.commit_own(DOING).await?;
            }
            Ok(copied)
        })
        .await
}

/// What may wait long is done before the lock: a last pass, after which only rows of transactions are missing that had not
/// ended when it began. Those have numbers from `since` on.
pub(super) async fn switch_receipts(store: &PgStore, from: CopyFrom<'_>) -> StoreResult<Switched> {
    const SINCE: &str = "SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::numeric % 4294967296)::text";
    let doing = "switching to oncebox's own table";
    let renamed = from.adopt.renamed(SUFFIX);
    if is_switched(store, from.adopt).await? {
        return Ok(Switched::Before);
    }
    let source = Source::of(store, from).await?;
    let mut written = 0;
    let since: String = {
        let mut txn = store.begin_aside().await?;
        let row = store.query(SINCE).fetch_one(&mut *txn).await.context(doing)?;
        txn.rollback().await;
        row.try_get(0).context(doing)?
    };
    let mut next = Some(PageMark::default());
    while let Some(page) = next {
        let copied = copy_receipts(store, from, &page).await?;
        written += copied.written;
        next = copied.next;
    }
    let mut txn = store.begin_aside().await?;
    // Whoever has written to the table ends before; whoever comes later waits, and then finds no table of that name.
    let lock = format!(
        "SET LOCAL statement_timeout = '10min'; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE",
        from.adopt.quoted('"')
    );
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *txn).await.context_of_ddl(doing)?;
    let mut next = Some(PageMark::default());
    while let Some(page) = next {
        let copied = source.copy(store, &mut txn, &page, Some(&since), false).await?;
        written += copied.written;
        next = copied.next;
    }
    let rename =
        format!("ALTER TABLE {} RENAME TO {}", from.adopt.quoted('"'), identifier(renamed.table_name()));
    sqlx::raw_sql(AssertSqlSafe(rename)).execute(&mut *txn).await.context_of_ddl(doing)?;
    txn.commit_ddl(doing).await?;
    Ok(Switched::Now { written, name: renamed.to_string() })
}

/// Whether the table has its other name already.
pub(super) async fn is_switched(store: &PgStore, adopt: &Adopt) -> StoreResult<bool> {
    Ok(!exists(store, adopt).await? && exists(store, &adopt.renamed(SUFFIX)).await?)
}

async fn exists(store: &PgStore, table: &Adopt) -> StoreResult<bool> {
    let mut txn = store.begin_aside().await?;
    let query = store.query("SELECT to_regclass($1) IS NOT NULL").bind(table.quoted('"'));
    let row = query.fetch_one(&mut *txn).await.context(DOING)?;
    txn.rollback().await;
    row.try_get(0).context(DOING)
}

/// The table, as it is copied from.
struct Source<'f> {
    table: Table,
    consumer: Option<&'f ConsumerName>,
    select: String,
}

impl<'f> Source<'f> {
    async fn of(store: &PgStore, from: CopyFrom<'f>) -> StoreResult<Self> {
        let table = describe::table_to_read(store, from.adopt).await?;
        let adopt = from.adopt;
        let column = |name: &str| format!("i.{}", identifier(name));
        let text = |name: Option<&str>| {
            name.map_or_else(|| "NULL::text".to_owned(), |name| format!("{}::text", column(name)))
        };
        let time = adopt.processed_at_column().filter(|_| adopt.is_purged(&table.found)).map_or_else(
            || "NULL::bigint".to_owned(),
            |name| {
                let time = column(name);
                format!("CASE WHEN isfinite({time}) THEN (extract(epoch FROM {time}::timestamptz) * 1000000)::bigint END")
            },
        );
        let select = format!(
            "SELECT {}::{}, {}, {}, {time} FROM ONLY {} i",
            column(adopt.message_id_column()),
            super::statements::native(table.id),
            text(adopt.consumer_column()),
            text(adopt.tenant_column()),
            adopt.quoted('"')
        );
        Ok(Self { table, consumer: from.consumer, select })
    }

    /// Copies the rows of some pages; of all of them only what transactions from `since` on have written.
    async fn copy(
        &self,
        store: &PgStore,
        conn: &mut PgConnection,
        page: &PageMark,
        since: Option<&str>,
        dry_run: bool,
    ) -> StoreResult<CopiedPage> {
        const PAGES: &str = "SELECT c.relkind::text, pg_relation_size(c.oid) / current_setting('block_size')::bigint \
             FROM pg_class c WHERE c.oid = to_regclass($1)";
        let size = store
            .query(PAGES)
            .bind(self.table.adopt.quoted('"'))
            .fetch_one(&mut *conn)
            .await
            .context(DOING)?;
        let kind: String = size.try_get(0).context(DOING)?;
        if kind == "p" {
            let why = format!(
                "{} is partitioned: copy its partitions one by one, with --copy-only",
                self.table.adopt
            );
            return Err(StoreError::new(ErrorClass::Failed, DOING, why));
        }
        let total: i64 = size.try_get(1).context(DOING)?;
        let page = page.as_number().max(0);
        let end = page.saturating_add(STEP_PAGES);
        let mut sql =
            format!("{} WHERE i.ctid >= '({page},0)'::tid AND i.ctid < '({end},0)'::tid", self.select);
        let query = match since {
            Some(since) => {
                sql.push_str(" AND age(i.xmin) <= age($1::text::xid)");
                store.query(AssertSqlSafe(sql)).bind(since)
            }
            None => store.query(AssertSqlSafe(sql)),
        };
        let rows = query.persistent(false).fetch_all(&mut *conn).await.context(DOING)?;
        let mut copied = CopiedPage { seen: rows.len() as u64, ..CopiedPage::default() };
        copied.uuids = self.table.id.is_uuid();
        copied.next = (end < total).then(|| PageMark::number(end));
        copied.progress = (end.min(total).unsigned_abs(), total.unsigned_abs());
        let mut receipts = Vec::with_capacity(rows.len());
        for row in &rows {
            let id = stored_id(self.table.id, row).context(DOING)?;
            let consumer: Option<String> = row.try_get(1).context(DOING)?;
            let consumer = consumer.or_else(|| self.consumer.map(ToString::to_string)).unwrap_or_default();
            let tenant: Option<String> = row.try_get(2).context(DOING)?;
            let time: Option<i64> = row.try_get(3).context(DOING)?;
            let id = self.table.id.id_of(&id).unwrap_or_default();
            receipts.extend(CopiedReceipt::new(consumer, tenant.unwrap_or_default(), id, time));
        }
        copied.skipped = copied.seen - receipts.len() as u64;
        receipts.sort_unstable_by_key(|receipt| receipt.key);
        copied.written = write(store, conn, &receipts, dry_run).await?;
        Ok(copied)
    }
}

/// Each with its own time; those without one are as old as this.
async fn write(
    store: &PgStore,
    conn: &mut PgConnection,
    receipts: &[CopiedReceipt],
    dry_run: bool,
) -> StoreResult<u64> {
    const MISSING: &str = "SELECT count(*) FROM unnest($1::uuid[]) AS c(k) \
         WHERE NOT EXISTS (SELECT FROM oncebox_inbox i WHERE i.key = c.k)";
    const WRITE: &str = "INSERT INTO oncebox_inbox (key, consumer, tenant, message_id, processed_at) \
         SELECT k, c, t, m, COALESCE(timestamptz 'epoch' + us * interval '1 microsecond', now()) \
         FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[]) AS r(k, c, t, m, us) \
         ON CONFLICT (key) DO NOTHING";
    if receipts.is_empty() {
        return Ok(0);
    }
    let keys: Vec<Uuid> = receipts.iter().map(|receipt| Uuid::from_bytes(*receipt.key.as_bytes())).collect();
    if dry_run {
        let row = store.query(MISSING).bind(keys).fetch_one(conn).await.context(DOING)?;
        return Ok(row.try_get::<i64, _>(0).context(DOING)?.unsigned_abs());
    }
    let names = |of: fn(&CopiedReceipt) -> &str| receipts.iter().map(of).collect::<Vec<_>>();
    let written = store
        .query(WRITE)
        .bind(keys)
        .bind(names(|receipt| &receipt.consumer))
        .bind(names(|receipt| &receipt.tenant))
        .bind(names(|receipt| &receipt.message_id))
        .bind(receipts.iter().map(|receipt| receipt.processed_at_us).collect::<Vec<_>>())
        .execute(conn)
        .await
        .context(DOING)?;
    Ok(written.rows_affected())
}
