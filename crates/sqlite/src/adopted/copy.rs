//! From an adopted table to oncebox's own: copied page by page while others write, then switched at once.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Adopt, CopiedPage, CopiedReceipt, CopyFrom, PageMark, StoreResult, Switched};
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::claim::stored_id;
use super::statements::{NOW, iso, quoted, quoted_table};
use super::{Table, describe};
use crate::classify::Context;
use crate::store::SqliteStore;

/// Rows that one step reads. A step holds the write lock for a few milliseconds.
const STEP_ROWS: i64 = 2000;

/// What the table is called after the switch.
const SUFFIX: &str = "_adopted";

const DOING: &str = "copying receipts";

/// Copies the rows behind `page`, which is the number of a row.
pub(super) async fn copy_receipts(
    store: &SqliteStore,
    from: CopyFrom<'_>,
    page: &PageMark,
) -> StoreResult<CopiedPage> {
    let source = Source::of(store, from).await?;
    let mut txn = store.begin().await?;
    let copied = source.copy(&mut txn, page, from.dry_run).await.context(DOING)?;
    if from.dry_run {
        txn.rollback().await;
    } else {
        txn.commit_own(DOING).await?;
    }
    Ok(copied)
}

/// The file has one writer: while this one is at it, nobody else writes.
pub(super) async fn switch_receipts(store: &SqliteStore, from: CopyFrom<'_>) -> StoreResult<Switched> {
    let doing = "switching to oncebox's own table";
    let renamed = from.adopt.renamed(SUFFIX);
    if is_switched(store, from.adopt).await? {
        return Ok(Switched::Before);
    }
    let source = Source::of(store, from).await?;
    let mut txn = store.begin().await?;
    let (mut next, mut written) = (Some(PageMark::default()), 0);
    while let Some(page) = next {
        let copied = source.copy(&mut txn, &page, false).await.context(doing)?;
        written += copied.written;
        next = copied.next;
    }
    let rename =
        format!("ALTER TABLE {} RENAME TO {}", quoted_table(from.adopt), quoted(renamed.table_name()));
    sqlx::raw_sql(AssertSqlSafe(rename)).execute(&mut *txn).await.context(doing)?;
    txn.commit_own(doing).await?;
    Ok(Switched::Now { written, name: renamed.to_string() })
}

/// Whether the table has its other name already.
pub(super) async fn is_switched(store: &SqliteStore, adopt: &Adopt) -> StoreResult<bool> {
    Ok(!exists(store, adopt).await? && exists(store, &adopt.renamed(SUFFIX)).await?)
}

async fn exists(store: &SqliteStore, table: &Adopt) -> StoreResult<bool> {
    const EXISTS: &str =
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE)";
    let mut conn = store.reader().await?;
    let row = sqlx::query(EXISTS).bind(table.table_name().to_owned()).fetch_one(&mut *conn).await;
    row.and_then(|row| row.try_get(0)).context(DOING)
}

/// The table, as it is copied from.
struct Source<'f> {
    table: Table,
    consumer: Option<&'f ConsumerName>,
    select: String,
}

impl<'f> Source<'f> {
    async fn of(store: &SqliteStore, from: CopyFrom<'f>) -> StoreResult<Self> {
        let table = describe::table_to_read(store, from.adopt).await?;
        let adopt = from.adopt;
        let text = |name: Option<&str>| {
            name.map_or_else(|| "NULL".to_owned(), |name| format!("CAST(i.{} AS TEXT)", quoted(name)))
        };
        let time = adopt.processed_at_column().map_or_else(
            || "NULL".to_owned(),
            |name| format!("CAST(round(unixepoch({}, 'subsec') * 1000000) AS INTEGER)", iso(name)),
        );
        // Without numbers of rows there is one page.
        let (number, limit) = if table.has_rowid { ("i.rowid", STEP_ROWS) } else { ("NULL", -1) };
        let behind =
            if table.has_rowid { "WHERE i.rowid > ?1 ORDER BY i.rowid" } else { "WHERE ?1 IS NOT NULL" };
        let select = format!(
            "SELECT i.{}, {}, {}, {time}, {number} FROM {} i {behind} LIMIT {limit}",
            quoted(adopt.message_id_column()),
            text(adopt.consumer_column()),
            text(adopt.tenant_column()),
            quoted_table(adopt)
        );
        Ok(Self { table, consumer: from.consumer, select })
    }

    async fn copy(
        &self,
        conn: &mut SqliteConnection,
        page: &PageMark,
        dry_run: bool,
    ) -> sqlx::Result<CopiedPage> {
        let behind = page.as_number();
        let query = sqlx::query(AssertSqlSafe(self.select.clone())).bind(behind);
        let rows = query.fetch_all(&mut *conn).await?;
        let mut copied = CopiedPage { seen: rows.len() as u64, ..CopiedPage::default() };
        copied.uuids = self.table.id.is_uuid();
        let mut receipts = Vec::with_capacity(rows.len());
        for row in &rows {
            let id = self.table.id.id_of(&stored_id(self.table.id, row)?).unwrap_or_default();
            let consumer: Option<String> = row.try_get_unchecked(1)?;
            let consumer = consumer.or_else(|| self.consumer.map(ToString::to_string)).unwrap_or_default();
            let tenant: Option<String> = row.try_get_unchecked(2)?;
            let time: Option<i64> = row.try_get_unchecked(3)?;
            copied.next = row.try_get_unchecked::<Option<i64>, _>(4)?.map(PageMark::number);
            receipts.extend(CopiedReceipt::new(consumer, tenant.unwrap_or_default(), id, time));
        }
        copied.skipped = copied.seen - receipts.len() as u64;
        if self.table.has_rowid {
            let highest = format!("SELECT coalesce(max(rowid), 0) FROM {}", quoted_table(&self.table.adopt));
            let highest: i64 = sqlx::query(AssertSqlSafe(highest)).fetch_one(&mut *conn).await?.try_get(0)?;
            let reached = copied.next.as_ref().map_or(highest, PageMark::as_number);
            copied.progress = (reached.unsigned_abs(), highest.unsigned_abs());
        }
        copied.written = write(conn, &receipts, dry_run).await?;
        Ok(copied)
    }
}

/// Each with its own time; those without one are as old as this.
async fn write(conn: &mut SqliteConnection, receipts: &[CopiedReceipt], dry_run: bool) -> sqlx::Result<u64> {
    const MISSING: &str = "SELECT count(*) FROM json_each(?1) c
        WHERE NOT EXISTS (SELECT 1 FROM oncebox_inbox i WHERE i.key = unhex(c.value->>0))";
    if receipts.is_empty() {
        return Ok(0);
    }
    let row = |receipt: &CopiedReceipt| {
        let key: String = receipt.key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let CopiedReceipt { consumer, tenant, message_id, processed_at_us, .. } = receipt;
        serde_json::json!([key, consumer, tenant, message_id, processed_at_us])
    };
    let rows = serde_json::Value::from_iter(receipts.iter().map(row)).to_string();
    if dry_run {
        let missing: i64 = sqlx::query(MISSING).bind(rows).fetch_one(conn).await?.try_get(0)?;
        return Ok(missing.unsigned_abs());
    }
    let write = format!(
        "INSERT INTO oncebox_inbox (key, consumer, tenant, message_id, processed_at)
         SELECT unhex(c.value->>0), c.value->>1, c.value->>2, c.value->>3,
             coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', (c.value->>4) / 1000000.0, 'unixepoch'), {NOW})
         FROM json_each(?1) c WHERE true ON CONFLICT (key) DO NOTHING"
    );
    Ok(sqlx::query(AssertSqlSafe(write)).bind(rows).execute(conn).await?.rows_affected())
}
