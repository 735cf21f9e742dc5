//! Adopted tables that are large: copied and purged along their indexes.

use oncebox_core::message::Record;
use oncebox_core::names::Tenant;
use oncebox_core::store::{Adopting, CopyFrom, DeadLetter, DeadLetters, PageMark, Store, Switched};
use oncebox_mysql::MysqlStore;
use sqlx::{Connection, MySqlConnection, Row};

use super::shop::{Shop, adopt, claim, ids};
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

fn id_of(n: u32) -> String {
    format!("01890a5d-ac96-774b-bcce-{n:012x}")
}

fn letter_of(id: String) -> DeadLetter {
    DeadLetter {
        tenant: Tenant::none(),
        message_id: Some(id),
        record: Record::at("orders", 0, 7),
        error: "no such stock".to_owned(),
        attempts: 5,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_does_not_compare_every_receipt_with_every_letter() {
    const MANY: u32 = 2000;
    let mut kinds = vec!["VARCHAR(100) CHARACTER SET latin1", "VARBINARY(100)", "CHAR(32)", "BINARY(16)"];
    if crate::SERVER == "ONCEBOX_TEST_MARIADB" {
        kinds.push("UUID");
    }
    for kind in kinds {
        let table = format!("CREATE TABLE inbox (id {kind} PRIMARY KEY, at TIMESTAMP NULL)");
        let shop = Shop::new_alone(&table, adopt("inbox", "id").processed_at("at").unwrap()).await;
        let names: Vec<String> = (0..MANY).map(id_of).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut claimed = claim(&shop.store, "stock", &ids(&names)).await.unwrap();
        // All but two are letters of other messages. How UUIDs are spelled is the messages' business.
        let uuids = !kind.starts_with("VAR");
        let spelled = |n: u32| if uuids { id_of(n).to_uppercase().replace('-', "") } else { id_of(n) };
        let letters: Vec<_> = (MANY - 2..2 * MANY).map(|n| letter_of(spelled(n))).collect();
        shop.store.park(&mut claimed.txn, &consumer(), &letters).await.unwrap();
        shop.store.commit(claimed.txn, None).await.unwrap();
        shop.run("UPDATE inbox SET at = at - INTERVAL 2 DAY; ANALYZE TABLE inbox, oncebox_dead").await;
        let before = rows_read(&shop.database.url).await;
        assert_eq!(shop.purge_as(true).await.receipts, u64::from(MANY - 2), "{kind}");
        let read = rows_read(&shop.database.url).await - before;
        assert!(read < 20 * i64::from(MANY), "{kind}: {read} rows read");
        assert_eq!(shop.purge().await.receipts, u64::from(MANY - 2), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_zone_of_the_url_makes_no_receipt_older_or_younger() {
    for zone in ["%2B05:00", "-05:00"] {
        let table = "CREATE TABLE inbox (id VARCHAR(100) PRIMARY KEY, at TIMESTAMP NULL)";
        let mapping = adopt("inbox", "id").processed_at("at").unwrap();
        let mut shop = Shop::new(table, mapping.clone()).await;
        let url = format!("{}&timezone={zone}", shop.database.url);
        shop.store = MysqlStore::builder(&url).adopt(mapping.clone()).connect().await.unwrap();
        // Receipts are kept for a day.
        shop.run(
            "INSERT INTO inbox VALUES ('old', NOW() - INTERVAL 26 HOUR), ('young', NOW() - INTERVAL 22 HOUR)",
        )
        .await;
        assert_eq!(shop.purge().await.receipts, 1, "{zone}");
        assert_eq!(shop.texts("SELECT id FROM inbox").await, ["young"], "{zone}");
        let stock = consumer();
        let from = CopyFrom { adopt: &mapping, consumer: Some(&stock), dry_run: false };
        assert_eq!(shop.store.copy_receipts(from, &PageMark::default()).await.unwrap().written, 1);
        let off = "SELECT o.message_id FROM oncebox_inbox AS o JOIN inbox AS i WHERE o.processed_at <> i.at";
        assert_eq!(shop.texts(off).await, [""; 0], "{zone}");
    }
}
