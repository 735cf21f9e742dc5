//! The bare claim in a transaction of the caller's own.

use sqlx::{Connection, SqliteConnection};

use crate::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn is_fresh_once_and_again_after_a_rollback() {
    let fixture = Fixture::new().await;
    let inbox = fixture.inbox();
    let mut conn = SqliteConnection::connect(&fixture.url).await.unwrap();

    let mut tx = conn.begin().await.unwrap();
    assert!(inbox.claim(&mut tx, "a").await.unwrap().is_fresh());
    tx.rollback().await.unwrap();

    let mut tx = conn.begin().await.unwrap();
    assert!(inbox.claim(&mut tx, "a").await.unwrap().is_fresh(), "nothing was committed");
    assert!(!inbox.claim(&mut tx, "a").await.unwrap().is_fresh(), "the second copy in one transaction");
    assert!(inbox.claim_for(&mut tx, "acme", "a").await.unwrap().is_fresh(), "another tenant");
    tx.commit().await.unwrap();

    let mut tx = conn.begin().await.unwrap();
    assert!(!inbox.claim(&mut tx, "a").await.unwrap().is_fresh());
    assert!(inbox.claim(&mut tx, "").await.is_err(), "an empty id is refused");
}
