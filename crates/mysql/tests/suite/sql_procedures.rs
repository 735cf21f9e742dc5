//! The procedures of handlers. MariaDB has none: there the statements go along with the batch.

use oncebox_core::store::{ErrorClass, Store};
use oncebox_mysql::MysqlStore;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};

use super::sql_support::{TABLES, as_worker, is_mariadb, prepare, run, sale, stock_each};
use super::support::{execute, number, with_store};

/// The names and comments of all procedures of handlers.
async fn procedures(url: &str) -> Vec<(String, String)> {
    let mut conn = MySqlConnection::connect(url).await.unwrap();
    let sql = "SELECT CAST(routine_name AS CHAR), CAST(routine_comment AS CHAR) FROM information_schema.routines \
         WHERE routine_schema = DATABASE() AND routine_name LIKE 'oncebox\\_each\\_%' ORDER BY 1";
    let rows = sqlx::query(sql).fetch_all(&mut conn).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn drop_all(url: &str) {
    for (name, _) in procedures(url).await {
        execute(url, &format!("DROP PROCEDURE {name}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_procedure_comes_back() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        let handler = prepare(&store, &stock_each()).await;
        run(&store, &handler, &[sale(1, "a", 1)]).await.unwrap();
        assert_eq!(procedures(&url).await.len(), usize::from(!is_mariadb()));
        drop_all(&url).await;
        if !is_mariadb() {
            let failure = run(&store, &handler, &[sale(2, "a", 1)]).await.unwrap_err();
            assert_eq!(MysqlStore::classify(&*failure.error), ErrorClass::Transient, "{failure:?}");
            assert_eq!(failure.at, None);
        }
        run(&store, &handler, &[sale(2, "a", 1)]).await.unwrap();
        assert_eq!(number(&url, "SELECT COUNT(*) FROM ledger").await, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_procedure_that_another_user_made_is_called() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        prepare(&store, &stock_each()).await;
        as_worker(url, |store, url| async move {
            let handler = prepare(&store, &stock_each()).await;
            run(&store, &handler, &[sale(1, "a", 1)]).await.unwrap();
            drop_all(&url).await;
            let ran = run(&store, &handler, &[sale(2, "a", 1)]).await;
            if is_mariadb() {
                return ran.unwrap();
            }
            // That it is missed shows that it was called. This user cannot make it again.
            assert_eq!(MysqlStore::classify(&*ran.unwrap_err().error), ErrorClass::Transient);
            let failure = run(&store, &handler, &[sale(2, "a", 1)]).await.unwrap_err();
            assert_eq!(MysqlStore::classify(&*failure.error), ErrorClass::Environment, "{failure:?}");
            assert!(failure.error.to_string().contains("CREATE ROUTINE"), "{failure:?}");
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn procedures_that_nobody_uses_are_dropped_after_a_month() {
    if is_mariadb() {
        return;
    }
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        for (name, age) in [("oncebox_each_old", 31), ("oncebox_each_new", 29)] {
            let mut conn = MySqlConnection::connect(&url).await.unwrap();
            let day = format!("SELECT CAST(UTC_DATE() - INTERVAL {age} DAY AS CHAR)");
            let day: String = sqlx::query(AssertSqlSafe(day)).fetch_one(&mut conn).await.unwrap().get(0);
            let comment = format!("oncebox handler, last prepared on {day}");
            execute(&url, &format!("CREATE PROCEDURE {name}() COMMENT '{comment}' DO 0")).await;
        }
        execute(&url, "CREATE PROCEDURE oncebox_each_foreign() COMMENT 'of somebody else' DO 0").await;
        prepare(&store, &stock_each()).await;
        let there = procedures(&url).await;
        assert_eq!(there.len(), 3, "{there:?}");
        assert!(there.iter().all(|(name, _)| name != "oncebox_each_old"), "{there:?}");
        // One that is used again is dated anew, and so it stays.
        let (ours, comment) = there.iter().find(|(name, _)| name.len() > 20).unwrap();
        let old = "oncebox handler, last prepared on 2020-01-01";
        execute(&url, &format!("ALTER PROCEDURE {ours} COMMENT '{old}'")).await;
        prepare(&store, &stock_each()).await;
        assert!(procedures(&url).await.contains(&(ours.clone(), comment.clone())));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_may_prepare_the_same_handler_at_once() {
    with_store(|store, url| async move {
        execute(&url, TABLES).await;
        let other = MysqlStore::connect(&url).await.unwrap();
        let handler = stock_each();
        let (one, two) = tokio::join!(prepare(&store, &handler), prepare(&other, &handler));
        run(&store, &one, &[sale(1, "a", 1)]).await.unwrap();
        run(&other, &two, &[sale(2, "a", 1)]).await.unwrap();
        assert_eq!(number(&url, "SELECT COUNT(*) FROM ledger").await, 2);
    })
    .await;
}
