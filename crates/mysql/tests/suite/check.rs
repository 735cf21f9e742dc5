//! What `check` finds on a real server.

use oncebox_core::store::{Check, Finding, FindingLevel};
use oncebox_mysql::MysqlStore;

use super::support::{Database, execute, with_store};

async fn found(store: &MysqlStore, subject: &str) -> Option<Finding> {
    store.check(4 << 20).await.unwrap().into_iter().find(|finding| finding.subject == subject)
}

#[tokio::test]
async fn a_server_as_it_comes_is_fit_for_the_job() {
    with_store(|store, _| async move {
        let findings = store.check(4 << 20).await.unwrap();
        let subjects: Vec<_> = findings.iter().map(|finding| finding.subject.as_str()).collect();
        for subject in
            ["server role", "version", "innodb_flush_log_at_trx_commit", "sql_mode", "schema", "tables"]
        {
            assert!(subjects.contains(&subject), "{subject} is missing: {subjects:?}");
        }
        let is_error = |finding: &&Finding| finding.level == FindingLevel::Error;
        assert_eq!(findings.iter().find(is_error), None);
        let version = findings.iter().find(|finding| finding.subject == "version").unwrap();
        let name = if crate::SERVER.ends_with("MARIADB") { "MariaDB " } else { "MySQL " };
        assert!(version.detail.starts_with(name), "{}", version.detail);
    })
    .await;
}

#[tokio::test]
async fn tables_that_know_no_transactions_are_named() {
    with_store(|store, url| async move {
        execute(&url, "CREATE TABLE ledger (id INT) ENGINE = MyISAM").await;
        let finding = found(&store, "tables").await.unwrap();
        assert_eq!(finding.level, FindingLevel::Warning);
        assert!(finding.detail.contains("ledger"), "{}", finding.detail);
        execute(&url, "ALTER TABLE oncebox_horizon ENGINE = MyISAM").await;
        let finding = found(&store, "tables").await.unwrap();
        assert_eq!(finding.level, FindingLevel::Error);
        assert!(finding.detail.contains("oncebox_horizon"), "{}", finding.detail);
    })
    .await;
}

#[tokio::test]
async fn a_column_with_another_collation_is_named() {
    with_store(|store, url| async move {
        assert_eq!(found(&store, "columns").await, None);
        let sql =
            "ALTER TABLE oncebox_inbox MODIFY message_id VARCHAR(512) COLLATE utf8mb4_general_ci NOT NULL";
        execute(&url, sql).await;
        let finding = found(&store, "columns").await.unwrap();
        assert_eq!(finding.level, FindingLevel::Error);
        assert!(finding.detail.contains("oncebox_inbox.message_id"), "{}", finding.detail);
    })
    .await;
}

#[tokio::test]
async fn rights_are_told() {
    let database = Database::create().await;
    MysqlStore::connect(&database.url).await.unwrap().migrate().await.unwrap();
    let level = |finding: Option<Finding>| finding.map(|finding| finding.level);
    for (rights, routines) in [
        ("SELECT, INSERT, UPDATE, DELETE", FindingLevel::Warning),
        ("SELECT, INSERT, UPDATE, DELETE, CREATE ROUTINE, EXECUTE", FindingLevel::Ok),
    ] {
        let user = database.user(rights).await;
        let store = MysqlStore::connect(&user.url).await.unwrap();
        assert_eq!(level(found(&store, "routines").await), Some(routines), "{rights}");
        assert_eq!(found(&store, "user").await, None);
    }
    let root = MysqlStore::connect(&database.url).await.unwrap();
    assert_eq!(level(found(&root, "user").await), Some(FindingLevel::Warning));
}

#[tokio::test]
async fn packets_are_compared_with_the_largest_batch() {
    with_store(|store, _| async move {
        let level = async |largest: usize| {
            let findings = store.check(largest).await.unwrap();
            findings.into_iter().find(|finding| finding.subject == "max_allowed_packet").map(|f| f.level)
        };
        assert_eq!(level(1024).await, Some(FindingLevel::Ok));
        assert_eq!(level(1 << 30).await, Some(FindingLevel::Warning));
    })
    .await;
}
