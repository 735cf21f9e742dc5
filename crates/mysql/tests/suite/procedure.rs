//! `oncebox_claim`, for any language.

use oncebox_mysql::MysqlStore;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};

use super::support::{apply, claim, number, until_someone_waits, with_store};

/// What `@fresh` is after a call with these arguments.
async fn call(conn: &mut MySqlConnection, arguments: &str) -> sqlx::Result<Option<i64>> {
    let call = format!("SET @fresh = NULL; CALL oncebox_claim({arguments}, @fresh)");
    let called = sqlx::raw_sql(AssertSqlSafe(call)).execute(&mut *conn).await;
    let fresh = sqlx::query("SELECT CAST(@fresh AS SIGNED)").fetch_one(conn).await?.get(0);
    called.map(|_| fresh)
}

async fn begun(url: &str) -> MySqlConnection {
    let mut conn = MySqlConnection::connect(url).await.unwrap();
    sqlx::raw_sql("START TRANSACTION").execute(&mut conn).await.unwrap();
    conn
}

async fn end(mut conn: MySqlConnection, how: &str) {
    sqlx::raw_sql(AssertSqlSafe(how.to_owned())).execute(&mut conn).await.unwrap();
}

#[tokio::test]
async fn a_message_is_fresh_once_and_each_tenant_has_its_own() {
    with_store(|store, url| async move {
        let mut conn = begun(&url).await;
        for (arguments, fresh) in [
            ("'stock', 'a', ''", 1),
            ("'stock', 'a', ''", 0),
            ("'stock', 'a', NULL", 0),
            ("'stock', 'A', ''", 1),
            ("'stock', 'a ', ''", 1),
            ("'stock', 'a', 'acme'", 1),
            ("'billing', 'a', ''", 1),
        ] {
            assert_eq!(call(&mut conn, arguments).await.unwrap(), Some(fresh), "{arguments}");
        }
        end(conn, "ROLLBACK").await;
        let mut conn = begun(&url).await;
        assert_eq!(call(&mut conn, "'stock', 'a', ''").await.unwrap(), Some(1), "it was rolled back");
        end(conn, "COMMIT").await;
        assert_eq!(apply(&store, &["a", "b"]).await, [false, true]);
        let mut conn = begun(&url).await;
        assert_eq!(call(&mut conn, "'stock', 'b', ''").await.unwrap(), Some(0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_copy_waits_and_goes_by_the_end_of_the_first() {
    with_store(|_, url| async move {
        for (how, fresh) in [("COMMIT", 0), ("ROLLBACK", 1)] {
            let arguments = format!("'stock', '{how}', ''");
            let mut first = begun(&url).await;
            assert_eq!(call(&mut first, &arguments).await.unwrap(), Some(1));
            // With a snapshot from before, as people have it who read first. REPEATABLE READ is the default of both servers.
            let mut second = begun(&url).await;
            sqlx::raw_sql("SELECT COUNT(*) FROM oncebox_inbox").execute(&mut second).await.unwrap();
            let waiting = tokio::spawn(async move { call(&mut second, &arguments).await });
            until_someone_waits(&url).await;
            assert!(!waiting.is_finished(), "it does not wait");
            end(first, how).await;
            assert_eq!(waiting.await.unwrap().unwrap(), Some(fresh), "{how}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_no_message_can_be_is_refused() {
    with_store(|_, url| async move {
        let mut conn = begun(&url).await;
        for (arguments, said) in [
            ("NULL, 'a', ''", "a consumer is"),
            ("'', 'a', ''", "a consumer is"),
            ("'two words', 'a', ''", "a consumer is"),
            ("REPEAT('c', 201), 'a', ''", "a consumer is"),
            ("'stock', NULL, ''", "a message id has"),
            ("'stock', '', ''", "a message id has"),
            ("'stock', REPEAT('i', 513), ''", "a message id has"),
            ("'stock', REPEAT('ä', 257), ''", "a message id has"),
            ("'stock', 'a', REPEAT('t', 257)", "a tenant has"),
        ] {
            let error = call(&mut conn, arguments).await.unwrap_err();
            assert!(error.to_string().contains(said), "{arguments}: {error}");
        }
        let fresh: Option<i64> = sqlx::query("SELECT @fresh").fetch_one(&mut conn).await.unwrap().get(0);
        assert_eq!(fresh, None);
        end(conn, "COMMIT").await;
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_inbox").await, 0);
    })
    .await;
}

#[tokio::test]
async fn the_receipt_of_another_message_with_the_same_key_is_an_error() {
    with_store(|_: MysqlStore, url| async move {
        let key: String = claim("a").key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut conn = begun(&url).await;
        let planted = format!(
            "INSERT INTO oncebox_inbox (`key`, consumer, message_id) VALUES (0x{key}, 'stock', 'another')"
        );
        sqlx::raw_sql(AssertSqlSafe(planted)).execute(&mut conn).await.unwrap();
        let error = call(&mut conn, "'stock', 'a', ''").await.unwrap_err();
        let number = error.as_database_error().unwrap().downcast_ref::<MySqlDatabaseError>().number();
        assert_eq!(number, 31004, "{error}");
        assert_eq!(call(&mut conn, "'stock', 'another', ''").await.unwrap(), Some(1), "it has its own key");
    })
    .await;
}
