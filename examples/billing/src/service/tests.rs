//! The way of an order to its mail, without a broker: crashes included.

use oncebox::testing::{FakeSink, TemporarySqlite, TestInbox, TestMessage, drain, message};
use serde_json::json;

use super::*;

async fn books() -> TemporarySqlite {
    let db = TemporarySqlite::new().await;
    sqlx::query(TABLE).execute(&mut db.connect().await).await.expect("the table");
    db
}

fn order() -> TestMessage {
    message("1001").json(&json!({"order": "1001", "cents": 1_900}))
}

#[tokio::test]
async fn an_order_is_billed_once() -> oncebox::Result {
    let db = books().await;
    let invoices = async || -> i64 {
        let sql = "SELECT count(*) FROM invoice";
        sqlx::query_scalar(sql).fetch_one(&mut db.connect().await).await.expect(sql)
    };
    let kit = TestInbox::new(inbox(&db.store())?);
    kit.assert_changes_once(&order(), invoices).await;
    let emitted = kit.emitted().await;
    emitted
        .assert_one("invoice.issued")
        .assert_key("1001")
        .assert_json(&json!({"order": "1001", "cents": 1_900}));
    Ok(())
}

#[tokio::test]
async fn an_order_that_cannot_be_read_is_rejected_and_nobody_gets_a_mail() -> oncebox::Result {
    let db = books().await;
    let kit = TestInbox::new(inbox(&db.store())?);
    kit.deliver(&message("1001").bytes("{}")).await.assert_rejected("missing field `order`");
    kit.emitted().await.assert_none();
    Ok(())
}

#[tokio::test]
async fn an_invoice_is_mailed_under_the_id_of_its_event() -> oncebox::Result {
    let (db, folder) = (books().await, tempfile::tempdir()?);
    let kit = TestInbox::new(inbox(&db.store())?);
    kit.crash_after_commit(&order()).await.assert_applied_once();
    let id = kit.emitted().await.assert_one("invoice.issued").id();
    drain(&db.store(), relay(&db.store(), folder.path())).await;
    let mails = std::fs::read_to_string(folder.path().join("mailbox"))?;
    assert_eq!(mails, format!("Message-ID: <{id}> Order: 1001 Cents: 1900\n"));
    Ok(())
}

#[tokio::test]
async fn events_of_other_topics_are_not_mailed() -> oncebox::Result {
    let (db, folder) = (books().await, tempfile::tempdir()?);
    let mut connection = db.connect().await;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    tx.emit(Event::to("invoice.paid").key("1001")).await?;
    tx.commit().await?;
    let rest = FakeSink::new();
    rest.fail_next(1);
    drain(&db.store(), relay(&db.store(), folder.path()).sink(rest.clone())).await;
    rest.delivered().assert_one("invoice.paid").assert_key("1001");
    assert!(!folder.path().join("mailbox").exists());
    Ok(())
}
