//! Adopted tables that are large: copied and purged along their indexes.

use oncebox_core::store::{Adopting, CopyFrom, PageMark, Switched};
use sqlx::{Connection, MySqlConnection, Row};

use super::shop::{Shop, adopt};
use super::support::consumer;

/// How many rows the server has read or passed so far, by all of its sessions.
async fn rows_read(url: &str) -> i64 {
    let mut conn = MySqlConnection::connect(url).await.unwrap();
    let rows = sqlx::raw_sql("SHOW GLOBAL STATUS LIKE 'Handler_read%'").fetch_all(&mut conn).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(1).parse::<i64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_copied_along_its_unique_key_and_each_row_is_read_once() {
    const ROWS: i64 = 30_000;
    let table = "CREATE TABLE inbox_event (consumer VARCHAR(50) NOT NULL, message_id VARCHAR(64) NOT NULL, \
         PRIMARY KEY (consumer, message_id))";
    let mapping = adopt("inbox_event", "message_id").consumer("consumer").unwrap();
    let shop = Shop::new_alone(table, mapping.clone()).await;
    for (consumer, from) in [("Billing", 0), ("stock", ROWS / 2)] {
        for part in 0..3 {
            let begin = from + part * ROWS / 6;
            let values: Vec<_> =
                (begin..begin + ROWS / 6).map(|n| format!("('{consumer}', 'order-{n}')")).collect();
            shop.run(&format!("INSERT INTO inbox_event VALUES {}", values.join(","))).await;
        }
    }
    let from = CopyFrom { adopt: &mapping, consumer: None, dry_run: false };
    let before = rows_read(&shop.database.url).await;
    let (mut next, mut written, mut progress) = (Some(PageMark::default()), 0, Vec::new());
    while let Some(page) = next {
        let copied = shop.store.copy_receipts(from, &page).await.unwrap();
        written += copied.written;
        progress.push(copied.progress);
        next = copied.next;
    }
    assert_eq!(written, ROWS.unsigned_abs());
    let read = rows_read(&shop.database.url).await - before;
    // Twice to find where pages end and what is in them, once where it goes.
    assert!(read < 5 * ROWS, "{read} rows read");
    assert!(progress.is_sorted_by_key(|(done, _)| *done), "{progress:?}");
    assert!(progress.len() > 3 && progress[0].1 > 0, "{progress:?}");
    assert_eq!(progress.last(), Some(&(ROWS.unsigned_abs(), ROWS.unsigned_abs())));

    // The switch compares all of it, and writes only what is missing.
    shop.run("INSERT INTO inbox_event VALUES ('Billing', 'order-1x'), ('stock', 'order-29999x')").await;
    let switched = shop.store.switch_receipts(from).await.unwrap();
    assert_eq!(switched, Switched::Now { written: 2, name: "inbox_event_adopted".to_owned() });
    let total = shop.texts("SELECT CAST(COUNT(*) AS CHAR) FROM oncebox_inbox").await;
    assert_eq!(total, [(ROWS + 2).to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_tenant_and_rows_that_are_the_same_to_the_table_are_copied() {
    let table = "CREATE TABLE inbox_event (tenant VARCHAR(20) COLLATE utf8mb4_general_ci, \
         message_id VARCHAR(64) COLLATE utf8mb4_general_ci NOT NULL, UNIQUE KEY (tenant, message_id))";
    let mapping = adopt("inbox_event", "message_id").tenant("tenant").unwrap();
    let shop = Shop::new(table, mapping.clone()).await;
    // NULL is never the same as NULL: more of them than fit into a page, and the rest behind.
    let values: Vec<_> = (0..5100).map(|n| format!("(NULL, '{}')", ["a", "A", "b"][n % 3])).collect();
    shop.run(&format!("INSERT INTO inbox_event VALUES {}, ('acme', 'a'), ('zeta', 'a')", values.join(",")))
        .await;
    let stock = consumer();
    let from = CopyFrom { adopt: &mapping, consumer: Some(&stock), dry_run: false };
    let switched = shop.store.switch_receipts(from).await.unwrap();
    assert_eq!(switched, Switched::Now { written: 5, name: "inbox_event_adopted".to_owned() });
    let names = shop.texts("SELECT CONCAT(tenant, '/', message_id) FROM oncebox_inbox ORDER BY 1").await;
    assert_eq!(names, ["/A", "/a", "/b", "acme/a", "zeta/a"]);
}
