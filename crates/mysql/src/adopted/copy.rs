//! From an adopted table to oncebox's own: copied page by page while others write, then switched.
//!
//! RENAME commits by itself here, so it comes first: it waits for the transactions that have touched the table, and whoever
//! comes later finds no table of that name. Then the whole table is compared once more, where it is now: nothing says which rows came
//! last. A process that ends in between has lost nothing: the next one finds the new name and goes on.

mod walk;

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    Adopt, CopiedPage, CopiedReceipt, CopyFrom, PageMark, StoreResult, StoredId, Switched,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::statements::{bytes_of, id_bytes};
use super::{Table, describe};
use crate::claim::MAX_MESSAGE_BYTES;
use crate::classify::Context;
use crate::purge::Mark;
use crate::quote::{identifier, number, push_bytes, push_text};
use crate::store::MysqlStore;
use walk::{Place, Walk, mark_of};

/// Rows that one page reads: a few hundredths of a second.
const PAGE_ROWS: u32 = 5000;

/// Keys that are asked for in one statement. MariaDB makes a temporary table of a thousand and more.
const KEYS_ASKED_FOR: usize = 900;

/// What the table is called after the switch.
const SUFFIX: &str = "_adopted";

const DOING: &str = "copying receipts";

/// Copies the rows of a page.
pub(super) async fn copy_receipts(
    store: &MysqlStore,
    from: CopyFrom<'_>,
    page: &PageMark,
) -> StoreResult<CopiedPage> {
    let place = Place::of_page(page);
    let source = Source::of(store, from, place.is_first()).await?;
    source.copy(store, &place, from.dry_run).await
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
    let source = Source::of(store, CopyFrom { adopt: &renamed, ..from }, true).await?;
    let (mut next, mut written) = (Some(PageMark::default()), 0);
    while let Some(page) = next {
        let copied = source.copy(store, &Place::of_page(&page), from.dry_run).await?;
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
    table: Arc<Table>,
    consumer: Option<&'f ConsumerName>,
    walk: Walk,
}

impl<'f> Source<'f> {
    /// Looks at the table when a pass begins, and keeps what it found for the pages behind.
    async fn of(store: &MysqlStore, from: CopyFrom<'f>, anew: bool) -> StoreResult<Self> {
        let known = store.inner.copied.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let table = match known.filter(|table| !anew && table.adopt == *from.adopt) {
            Some(table) => table,
            None => {
                let table = Arc::new(describe::table_to_read(store, from.adopt).await?);
                *store.inner.copied.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&table));
                table
            }
        };
        Ok(Self { walk: Walk::over(&table), table, consumer: from.consumer })
    }

    /// One page, in one transaction.
    async fn copy(&self, store: &MysqlStore, place: &Place, dry_run: bool) -> StoreResult<CopiedPage> {
        store
            .patiently(DOING, async {
                let mut txn = store.begin_in_utc().await?;
                let copied = self.copy_page(store, &mut txn, place.clone(), dry_run).await.context(DOING)?;
                if dry_run {
                    txn.rollback().await;
                } else {
                    txn.commit_own(DOING).await?;
                }
                Ok(copied)
            })
            .await
    }

    async fn copy_page(
        &self,
        store: &MysqlStore,
        conn: &mut MySqlConnection,
        mut place: Place,
        dry_run: bool,
    ) -> sqlx::Result<CopiedPage> {
        if place.is_first() {
            place.total = self.rows_guessed(store, conn).await?;
        }
        let id = identifier(self.table.adopt.message_id_column());
        let behind = format!("{} AND {id} IS NOT NULL", self.walk.behind(&place));
        let last = format!(
            "SELECT {} FROM {}{} WHERE {behind} ORDER BY {} LIMIT 1 OFFSET {}",
            self.walk.values(),
            self.table.adopt.quoted('`'),
            self.walk.hint(),
            self.walk.order(),
            PAGE_ROWS - 1
        );
        let last = sqlx::raw_sql(AssertSqlSafe(last)).fetch_optional(&mut *conn).await?;
        let last = last.map(|row| self.walk.read(&row)).transpose()?;
        // Several rows may be the same in this order, so a page ends behind all of them. The last page has no end.
        let up_to = last.as_ref().map_or_else(|| "TRUE".to_owned(), |values| self.walk.up_to(values));
        let select = format!("{} WHERE {behind} AND {up_to}", self.select());
        let rows = sqlx::raw_sql(AssertSqlSafe(select)).fetch_all(&mut *conn).await?;
        let mut copied = CopiedPage { seen: rows.len() as u64, ..CopiedPage::default() };
        copied.uuids = self.table.id.is_uuid();
        let done = place.done + copied.seen;
        copied.progress = (done, if last.is_some() { place.total.max(done) } else { done });
        copied.next = last.map(|values| place.after(copied.seen, values).to_page());
        let mut receipts = Vec::with_capacity(rows.len());
        for row in &rows {
            receipts.extend(self.receipt(row)?);
        }
        copied.skipped = copied.seen - receipts.len() as u64;
        copied.written = write_missing(conn, receipts, dry_run).await?;
        Ok(copied)
    }

    /// How many rows there are, as far as the server knows without counting.
    async fn rows_guessed(&self, store: &MysqlStore, conn: &mut MySqlConnection) -> sqlx::Result<u64> {
        const GUESS: &str = "SELECT CAST(table_rows AS SIGNED) FROM information_schema.tables \
             WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";
        let adopt = &self.table.adopt;
        let row =
            store.query(GUESS).bind(adopt.schema()).bind(adopt.table_name()).fetch_optional(conn).await?;
        let rows: Option<i64> = row.map(|row| row.try_get(0)).transpose()?.flatten();
        Ok(rows.unwrap_or_default().unsigned_abs())
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
            "SELECT {}, {}, {}, CAST({time} AS SIGNED) FROM {}{}",
            id_bytes(self.table.id, &identifier(adopt.message_id_column())),
            name(adopt.consumer_column()),
            name(adopt.tenant_column()),
            adopt.quoted('`'),
            self.walk.hint()
        )
    }

    fn receipt(&self, row: &MySqlRow) -> sqlx::Result<Option<CopiedReceipt>> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap_or_default();
        let id: Vec<u8> = row.try_get_unchecked(0)?;
        let id = match mark_of(self.table.id) {
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

/// Writes those that are not there, each with its own time, or with this one if it has none. Returns how many.
async fn write_missing(
    conn: &mut MySqlConnection,
    mut receipts: Vec<CopiedReceipt>,
    dry_run: bool,
) -> sqlx::Result<u64> {
    if receipts.is_empty() {
        return Ok(0);
    }
    receipts.sort_unstable_by_key(|receipt| receipt.key);
    receipts.dedup_by_key(|receipt| receipt.key);
    let there = there(conn, &receipts).await?;
    receipts.retain(|receipt| !there.contains(receipt.key.as_bytes().as_slice()));
    if dry_run {
        return Ok(receipts.len() as u64);
    }
    let mut insert = String::new();
    for receipt in &receipts {
        if insert.len() > MAX_MESSAGE_BYTES {
            send(conn, &mut insert).await?;
        }
        insert.push_str(if insert.is_empty() {
            "INSERT INTO oncebox_inbox (`key`, consumer, tenant, message_id, processed_at) VALUES ("
        } else {
            ", ("
        });
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
    send(conn, &mut insert).await?;
    Ok(receipts.len() as u64)
}

/// The keys of those that are there.
async fn there(conn: &mut MySqlConnection, receipts: &[CopiedReceipt]) -> sqlx::Result<HashSet<Vec<u8>>> {
    let mut there = HashSet::new();
    for part in receipts.chunks(KEYS_ASKED_FOR) {
        let mut sql = "SELECT `key` FROM oncebox_inbox WHERE `key` IN (".to_owned();
        for (at, receipt) in part.iter().enumerate() {
            if at > 0 {
                sql.push(',');
            }
            push_bytes(&mut sql, receipt.key.as_bytes());
        }
        sql.push(')');
        for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut *conn).await? {
            there.insert(row.try_get_unchecked(0)?);
        }
    }
    Ok(there)
}

/// Somebody else may copy at the same time, so one that is there by now is no error.
async fn send(conn: &mut MySqlConnection, insert: &mut String) -> sqlx::Result<()> {
    if !insert.is_empty() {
        insert.push_str(" ON DUPLICATE KEY UPDATE copies = copies");
        sqlx::raw_sql(AssertSqlSafe(std::mem::take(insert))).execute(conn).await?;
    }
    Ok(())
}
