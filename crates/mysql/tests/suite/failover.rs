//! A primary that is one no longer.

use oncebox_core::store::{Check, ErrorClass, Positions, Status, Store};
use oncebox_mysql::{MysqlStore, MysqlTxn};
use sqlx::Row;

use super::support::{
    Database, Setting, advance, apply, claims, consumer, number, position, with_database, with_store,
};

/// What the store needs when the tables are there.
const RIGHTS: &str = "SELECT, INSERT, UPDATE, DELETE";

async fn id_of(txn: &mut MysqlTxn) -> u64 {
    sqlx::query("SELECT CONNECTION_ID()").fetch_one(&mut **txn).await.unwrap().get(0)
}

#[tokio::test]
async fn a_demoted_primary_is_away_and_its_connections_are_thrown_away() {
    let database = Database::create_alone().await;
    MysqlStore::connect(&database.url).await.unwrap().migrate().await.unwrap();
    // A superuser writes to a server that is read-only.
    let user = database.user(RIGHTS).await;
    let store = MysqlStore::builder(&user.url).max_connections(1).connect().await.unwrap();
    let owner = store.acquire(&position()).await.unwrap();
    let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
    let before = id_of(&mut claimed.txn).await;

    let demoted = Setting::of(&database, "read_only = 1", "read_only = 0").await;
    let error = store.commit(claimed.txn, advance(&owner, 1)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Away, "{error}");
    let error = store.claim(&consumer(), &claims(&["b"])).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Away, "{error}");
    let error = store.ping().await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Away, "{error}");
    assert!(error.to_string().contains("read_only"), "{error}");
    let error = MysqlStore::connect(&user.url).await.unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    drop(demoted);

    store.ping().await.unwrap();
    let mut claimed = store.claim(&consumer(), &claims(&["a", "b"])).await.unwrap();
    assert_eq!(claimed.fresh, [true, true]);
    assert_ne!(id_of(&mut claimed.txn).await, before);
    store.commit(claimed.txn, advance(&owner, 2)).await.unwrap();
    let status = store.status(10).await.unwrap();
    assert_eq!(status.positions[0].next_offset, Some(2));
    assert_eq!(status.consumers[0].dead_letters, 0);
}

#[tokio::test]
async fn a_session_that_became_read_only_is_away_and_thrown_away() {
    with_database(|url| async move {
        let store = MysqlStore::builder(&url).max_connections(1).connect().await.unwrap();
        store.migrate().await.unwrap();
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        sqlx::raw_sql("SET SESSION TRANSACTION READ ONLY").execute(&mut *claimed.txn).await.unwrap();
        let before = id_of(&mut claimed.txn).await;
        store.commit(claimed.txn, None).await.unwrap();
        let error = store.claim(&consumer(), &claims(&["b"])).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Away, "{error}");
        let mut claimed = store.claim(&consumer(), &claims(&["a", "b"])).await.unwrap();
        assert_eq!(claimed.fresh, [false, true]);
        assert_ne!(id_of(&mut claimed.txn).await, before);
        store.commit(claimed.txn, None).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_the_server_ended_is_away() {
    with_store(|store, url| async move {
        let mut claimed = store.claim(&consumer(), &claims(&["a"])).await.unwrap();
        let id = id_of(&mut claimed.txn).await;
        super::support::execute(&url, &format!("KILL {id}")).await;
        let error = store.commit(claimed.txn, None).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Away, "{error}");
        assert_eq!(apply(&store, &["a"]).await, [true]);
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_inbox").await, 1);
    })
    .await;
}
