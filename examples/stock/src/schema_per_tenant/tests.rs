//! The handler on PostgreSQL, without a broker.

use oncebox::testing::{TemporaryPostgres, TestInbox, message};
use serde_json::json;

use super::{inbox, tables};

#[tokio::test]
async fn an_order_takes_its_goods_from_the_schema_of_its_tenant() -> oncebox::Result {
    let db = TemporaryPostgres::new(&std::env::var("ONCEBOX_TEST_POSTGRES")?).await;
    tables(&mut db.connect().await).await?;
    let kit = TestInbox::new(inbox(db.store())?);
    let order =
        message("1001").header("tenant", "acme").json(&json!({"order": "1001", "sku": "bolt", "qty": 5}));
    let on_hand = async || -> i64 {
        let sql = "SELECT on_hand FROM acme.stock";
        sqlx::query_scalar(sql).fetch_one(&mut db.connect().await).await.expect(sql)
    };
    kit.assert_changes_once(&order, on_hand).await;
    kit.emitted().await.assert_one("stock.changed").assert_key("bolt");
    Ok(())
}
