//! From an adopted table to oncebox's own: copied page by page while others write, then switched.
//!
//! RENAME commits by itself here, so it comes first: it waits for the transactions that have touched the table, and whoever
//! comes later finds no table of that name. Then the rest is copied from where the table is now. A process that ends in between
//! has lost nothing: the next one finds the new name and goes on.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    Adopt, CopiedPage, CopiedReceipt, CopyFrom, IdKind, PageMark, StoreResult, StoredId, Switched,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::statements::{bytes_of, id_bytes};
use super::{Table, describe};
use crate::classify::Context;
use crate::purge::Mark;
use crate::quote::{identifier, number, push_bytes, push_text};
use crate::store::MysqlStore;

/// Rows that one step reads.
const STEP_ROWS: u32 = 500;

/// What the table is called after the switch.
const SUFFIX: &str = "_adopted";

const DOING: &str = "copying receipts";

/// Copies the rows behind an id.
pub(super) async fn copy_receipts(
    store: &MysqlStore,
    from: CopyFrom<'_>,
    page: &PageMark,
) -> StoreResult<CopiedPage> {
    let source = Source::of(store, from).await?;
    store
        .patiently(DOING, async {
            let mut txn = store.begin_aside().await?;
            let copied = source.copy(&mut txn, page, from.dry_run).await.context(DOING)?;
            if from.dry_run {
                txn.rollback().await;
            } else {
                txn.commit_own(DOING).await?;
            }
            Ok(copied)
        })
        .await
}

/// Renames the table, then copies what is missing.
pub(super) async fn switch_receipts(store: &MysqlStore, from: CopyFrom<'_>) -> StoreResult<Switched> {
    let doing = "switching to oncebox's own table";
    let renamed = from.adopt.renamed(SUFFIX);
    let before = is_switched(store, from.adopt).await?;
    if !before {
        // Whoever waits for the table waits behind this one, so it must not wait for long.
        let rename = format!(
            "SET SESSION lock_wait_timeout = 30; RENAME TABLE {} TO {}",
            from.adopt.quoted('`'),
            renamed.quoted('`')
        );
        let mut txn = store.begin_aside().await?;
        // The statement has ended the transaction, so the connection is not used again.
        sqlx::raw_sql(AssertSqlSafe(rename)).execute(&mut *txn).await.context_of_ddl(doing)?;
    }
    let from = CopyFrom { adopt: &renamed, ..from };
    let (mut next, mut written) = (Some(PageMark::default()), 0);
    while let Some(page) = next {
        let copied = copy_receipts(store, from, &page).await?;
        written += copied.written;
        next = copied.next;
    }
    Ok(match (before, written) {
        (true, 0) => Switched::Before,
        _ => Switched::Now { written, name: renamed.to_string() },
    })
}

/// Whether the table has its other name already.
pub(super) async fn is_switched(store: &MysqlStore, adopt: &Adopt) -> StoreResult<bool> {
    Ok(!exists(store, adopt).await? && exists(store, &adopt.renamed(SUFFIX)).await?)
}

async fn exists(store: &MysqlStore, table: &Adopt) -> StoreResult<bool> {
    const EXISTS: &str = "SELECT COUNT(*) FROM information_schema.tables \
         WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";
    let mut txn = store.begin_aside().await?;
    let query = store.query(EXISTS).bind(table.schema()).bind(table.table_name());
    let row = query.fetch_one(&mut *txn).await.context(DOING)?;
    txn.rollback().await;
    Ok(row.try_get::<i64, _>(0).context(DOING)? > 0)
}

/// The table, as it is copied from.
struct Source<'f> {
    table: Table,
    consumer: Option<&'f ConsumerName>,
    mark: String,
    marked_by: Mark,
}

impl<'f> Source<'f> {
    async fn of(store: &MysqlStore, from: CopyFrom<'f>) -> StoreResult<Self> {
        let table = describe::table_to_read(store, from.adopt).await?;
        let marked_by = match table.id {
            IdKind::UuidBytes | IdKind::Bytes { .. } => Mark::Bytes,
            IdKind::Text { .. } | IdKind::Uuid | IdKind::UuidHex => Mark::Text,
        };
        let mark = identifier(from.adopt.message_id_column());
        Ok(Self { table, consumer: from.consumer, mark, marked_by })
    }

    async fn copy(
        &self,
        conn: &mut MySqlConnection,
        page: &PageMark,
        dry_run: bool,
    ) -> sqlx::Result<CopiedPage> {
        let (mark, table) = (&self.mark, self.table.adopt.quoted('`'));
        // The first byte says only that there is a mark, which may be empty.
        let behind = self.marked_by.behind(mark, page.0.split_first().map(|(_, mark)| mark));
        // Several consumers may have the same id, so a page ends behind all of them.
        let end = format!(
            "SELECT {}, COUNT(*) FROM (SELECT {mark} AS mark FROM {table} WHERE {behind} ORDER BY {mark} LIMIT {STEP_ROWS}) AS step",
            id_bytes(self.table.id, "MAX(mark)")
        );
        let end = sqlx::raw_sql(AssertSqlSafe(end)).fetch_one(&mut *conn).await?;
        let Some(reached) = end.try_get_unchecked::<Option<Vec<u8>>, _>(0)? else {
            return Ok(CopiedPage::default());
        };
        let select = format!("{} WHERE {behind} AND {}", self.select(), self.marked_by.up_to(mark, &reached));
        let rows = sqlx::raw_sql(AssertSqlSafe(select)).fetch_all(&mut *conn).await?;
        let mut copied = CopiedPage { seen: rows.len() as u64, ..CopiedPage::default() };
        copied.uuids = self.table.id.is_uuid();
        copied.next = Some(PageMark([&[1], reached.as_slice()].concat()));
        let mut receipts = Vec::with_capacity(rows.len());
        for row in &rows {
            receipts.extend(self.receipt(row)?);
        }
        copied.skipped = copied.seen - receipts.len() as u64;
        receipts.sort_unstable_by_key(|receipt| receipt.key);
        copied.written = write(conn, &receipts, dry_run).await?;
        Ok(copied)
    }

    fn select(&self) -> String {
        let adopt = &self.table.adopt;
        let name = |column: Option<&str>| {
            column.map_or_else(|| "NULL".to_owned(), |column| bytes_of(&identifier(column)))
        };
        let time = adopt.processed_at_column().filter(|_| adopt.is_purged(&self.table.found)).map_or_else(
            || "NULL".to_owned(),
            |column| {
                format!("TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', {})", identifier(column))
            },
        );
        format!(
            "SELECT {}, {}, {}, CAST({time} AS SIGNED) FROM {}",
            id_bytes(self.table.id, &self.mark),
            name(adopt.consumer_column()),
            name(adopt.tenant_column()),
            adopt.quoted('`')
        )
    }

    fn receipt(&self, row: &MySqlRow) -> sqlx::Result<Option<CopiedReceipt>> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap_or_default();
        let id: Vec<u8> = row.try_get_unchecked(0)?;
        let id = match self.marked_by {
            Mark::Bytes => StoredId::Bytes(id),
            Mark::Text => StoredId::Text(text(id)),
        };
        let id = self.table.id.id_of(&id).unwrap_or_default();
        let consumer = row.try_get_unchecked::<Option<Vec<u8>>, _>(1)?.map(text);
        let consumer = consumer.or_else(|| self.consumer.map(ToString::to_string)).unwrap_or_default();
        let tenant = row.try_get_unchecked::<Option<Vec<u8>>, _>(2)?.map(text).unwrap_or_default();
        Ok(CopiedReceipt::new(consumer, tenant, id, row.try_get_unchecked(3)?))
    }
}

/// Each with its own time; those without one are as old as this. How many were missing is asked before: the server counts those
/// that were there as well.
async fn write(conn: &mut MySqlConnection, receipts: &[CopiedReceipt], dry_run: bool) -> sqlx::Result<u64> {
    if receipts.is_empty() {
        return Ok(0);
    }
    let (mut there, mut insert) = (
        "SELECT COUNT(*) FROM oncebox_inbox WHERE `key` IN (".to_owned(),
        "INSERT INTO oncebox_inbox (`key`, consumer, tenant, message_id, processed_at) VALUES ".to_owned(),
    );
    for (at, receipt) in receipts.iter().enumerate() {
        if at > 0 {
            there.push(',');
            insert.push_str(", ");
        }
        push_bytes(&mut there, receipt.key.as_bytes());
        insert.push('(');
        push_bytes(&mut insert, receipt.key.as_bytes());
        for text in [&receipt.consumer, &receipt.tenant, &receipt.message_id] {
            insert.push_str(", ");
            push_text(&mut insert, text);
        }
        insert.push_str(&format!(
            ", COALESCE(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {} MICROSECOND, UTC_TIMESTAMP(6)))",
            number(receipt.processed_at_us)
        ));
    }
    there.push(')');
    insert.push_str(" ON DUPLICATE KEY UPDATE copies = copies");
    let there: i64 = sqlx::raw_sql(AssertSqlSafe(there)).fetch_one(&mut *conn).await?.try_get_unchecked(0)?;
    if !dry_run {
        sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut *conn).await?;
    }
    Ok((receipts.len() as u64).saturating_sub(there.unsigned_abs()))
}
