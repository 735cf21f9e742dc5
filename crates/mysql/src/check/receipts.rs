//! Whether the tables are kept as they should be.

use oncebox_core::store::Finding;
use sqlx::{MySqlConnection, Row};

/// More names than this are not listed.
const MOST_NAMES: usize = 10;

/// Tables whose engine knows no transactions. An engine that the server does not know counts as one of them.
const NOT_TRANSACTIONAL: &str = "SELECT t.table_name FROM information_schema.tables AS t \
     LEFT JOIN information_schema.engines AS e ON e.engine = t.engine \
     WHERE t.table_schema = DATABASE() AND t.table_type = 'BASE TABLE' AND t.engine IS NOT NULL \
         AND COALESCE(e.transactions, 'NO') <> 'YES' ORDER BY t.table_name LIMIT 11";

/// Columns of ours that compare other than byte for byte, and a key that is not what a claim writes.
const WRONG_COLUMNS: &str = "SELECT CONCAT(c.table_name, '.', c.column_name) FROM information_schema.columns AS c \
     WHERE c.table_schema = DATABASE() AND LEFT(c.table_name, 8) = 'oncebox_' \
         AND ((c.collation_name IS NOT NULL AND RIGHT(c.collation_name, 4) <> '_bin') \
             OR (c.table_name = 'oncebox_inbox' AND c.column_name = 'key' AND c.column_type <> 'binary(16)')) \
     ORDER BY 1 LIMIT 11";

/// The receipts lie in their key, so the table itself should fit into memory.
const SIZE: &str = "SELECT CAST(MAX(data_length) AS SIGNED), CAST(@@innodb_buffer_pool_size AS SIGNED) \
     FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'oncebox_inbox'";

pub(super) async fn findings(conn: &mut MySqlConnection) -> sqlx::Result<Vec<Finding>> {
    let mut findings = vec![engines(&names(conn, NOT_TRANSACTIONAL).await?)];
    findings.extend(columns(&names(conn, WRONG_COLUMNS).await?));
    findings.extend(size(conn).await?);
    Ok(findings)
}

async fn names(conn: &mut MySqlConnection, sql: &'static str) -> sqlx::Result<Vec<String>> {
    let rows = sqlx::query(sql).fetch_all(conn).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

fn engines(tables: &[String]) -> Finding {
    let subject = "tables";
    if let Some(ours) = tables.iter().find(|table| table.starts_with("oncebox_")) {
        let detail = format!(
            "{ours} is not in InnoDB, so nothing is undone there. ALTER TABLE {ours} ENGINE = InnoDB"
        );
        return Finding::error(subject, detail);
    }
    if tables.is_empty() {
        return Finding::ok(subject, "all of them know transactions");
    }
    Finding::warning(
        subject,
        format!(
            "{} know no transactions: what a handler writes there stays when its transaction is undone, and is written again. \
             ALTER TABLE … ENGINE = InnoDB",
            list(tables)
        ),
    )
}

fn columns(columns: &[String]) -> Option<Finding> {
    (!columns.is_empty()).then(|| {
        Finding::error(
            "columns",
            format!(
                "{} do not compare byte for byte, so that two ids may be taken for one. ALTER TABLE … CONVERT TO CHARACTER SET \
                 utf8mb4 COLLATE utf8mb4_bin",
                list(columns)
            ),
        )
    })
}

fn list(names: &[String]) -> String {
    let shown = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NAMES { format!("{shown} and more") } else { shown }
}

/// Ids without a time in them fall anywhere in the table.
async fn size(conn: &mut MySqlConnection) -> sqlx::Result<Option<Finding>> {
    let row = sqlx::query(SIZE).fetch_one(conn).await?;
    let (table, memory): (Option<i64>, i64) = (row.try_get(0)?, row.try_get(1)?);
    let mib = |bytes: i64| bytes / (1024 * 1024);
    Ok(table.filter(|table| *table > memory).map(|table| {
        Finding::warning(
            "receipts",
            format!(
                "{} MiB, more than innodb_buffer_pool_size ({} MiB): messages whose ids are not UUIDv7 slow down as they grow. \
                 Raise innodb_buffer_pool_size, use UUIDv7 ids, or keep receipts for less long",
                mib(table),
                mib(memory)
            ),
        )
    }))
}

#[cfg(test)]
mod tests {
    use oncebox_core::store::FindingLevel::{Error, Ok, Warning};

    use super::*;

    #[test]
    fn tables_without_transactions_are_named() {
        let of = |names: &[&str]| engines(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]).level, Ok);
        assert_eq!(of(&["ledger", "oncebox_inbox"]).level, Error);
        let many: Vec<String> = (0..11).map(|n| format!("t{n}")).collect();
        let finding = engines(&many);
        assert_eq!(finding.level, Warning);
        assert!(
            finding.detail.starts_with("t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and more"),
            "{}",
            finding.detail
        );
    }
}
