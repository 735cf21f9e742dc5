//! A loop of your own has no engine to put a test kit in front of: a temporary database is all it needs.

use oncebox::Inbox;
use oncebox::testing::TemporarySqlite;

use crate::{TABLE, receive};

#[tokio::test]
async fn an_invoice_is_written_once_and_one_that_failed_may_come_again() -> oncebox::Result {
    let db = TemporarySqlite::new().await;
    let mut connection = db.connect().await;
    sqlx::raw_sql(TABLE).execute(&mut connection).await?;
    let inbox = Inbox::new("invoices", db.store())?;

    assert!(receive(&inbox, &mut connection, "INV-1", -5).await.is_err(), "the table refuses it");
    for _copy in 0..2 {
        receive(&inbox, &mut connection, "INV-1", 1_900).await?;
    }
    let cents: Vec<i64> = sqlx::query_scalar("SELECT cents FROM invoice").fetch_all(&mut connection).await?;
    assert_eq!(cents, [1_900], "its receipt went with the transaction that failed");
    Ok(())
}
