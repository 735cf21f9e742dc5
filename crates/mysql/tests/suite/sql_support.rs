//! What the tests of handlers in SQL share.
#![allow(unreachable_pub, missing_docs)]

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

use bytes::Bytes;
use futures_util::FutureExt;
use oncebox_core::error::Outcome;
use oncebox_core::inbox::{Apply, Failure};
use oncebox_core::message::{Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use oncebox_core::store::Store;
use oncebox_mysql::{MysqlStore, SqlHandler};
use oncebox_sql::{Handler, PayloadKind, RowRule, Statement};

use super::support::{consumer, execute, with_store};

pub const TABLES: &str = "CREATE TABLE stock (sku VARCHAR(50) PRIMARY KEY, on_hand INT NOT NULL CHECK (on_hand >= 0)); \
     INSERT INTO stock VALUES ('a', 100), ('b', 100); \
     CREATE TABLE ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, message_id VARCHAR(200) UNIQUE, sku VARCHAR(50), qty INT, \
     extra LONGTEXT)";

pub fn each(statements: &[(&str, Option<&str>)]) -> Handler {
    let statement = |(sql, rows): &(&str, Option<&str>)| match rows {
        Some(rows) => Statement::new(*sql).rows(rows.parse::<RowRule>().unwrap()),
        None => Statement::new(*sql),
    };
    Handler::each(statements.iter().map(statement)).unwrap()
}

pub fn batch(statements: &[&str]) -> Handler {
    Handler::batch(statements.iter().copied()).unwrap()
}

pub fn stock_each() -> Handler {
    each(&[
        (
            "UPDATE stock SET on_hand = on_hand - JSON_VALUE(:payload, '$.qty') WHERE sku = :payload->>'$.sku'",
            Some("1"),
        ),
        (
            "INSERT INTO ledger (message_id, sku, qty) VALUES (:id, :payload->>'$.sku', JSON_VALUE(:payload, '$.qty')) -- done",
            Some("1"),
        ),
    ])
}

pub fn record(offset: i64, payload: &str) -> Record {
    let mut record = Record::at("stock.updates", 3, offset);
    record.payload = Some(Bytes::copy_from_slice(payload.as_bytes()));
    record
}

pub fn message(record: Record) -> Message {
    Message::new(MessageId::new(format!("m-{}", record.offset)).unwrap(), Tenant::none(), record)
}

pub fn sale(offset: i64, sku: &str, qty: i64) -> Message {
    message(record(offset, &format!(r#"{{"sku": "{sku}", "qty": {qty}}}"#)))
}

pub async fn prepare(store: &MysqlStore, handler: &Handler) -> SqlHandler {
    SqlHandler::prepare(store, handler, PayloadKind::Json).await.unwrap()
}

/// Runs the handler in a transaction; commits if it worked.
pub async fn run(store: &MysqlStore, handler: &SqlHandler, messages: &[Message]) -> Result<(), Failure> {
    let mut claimed = store.claim(&consumer(), &[]).await.unwrap();
    match handler.apply(&mut claimed.txn, messages).await {
        Ok(()) => store.commit(claimed.txn, None).await.unwrap(),
        Err(failure) => {
            store.rollback(claimed.txn).await;
            return Err(failure);
        }
    }
    Ok(())
}

pub fn rejection(failure: &Failure) -> &str {
    match failure.error.downcast_ref::<Outcome>() {
        Some(Outcome::Reject { reason }) => reason,
        _ => panic!("not a rejection: {failure:?}"),
    }
}

pub fn is_mariadb() -> bool {
    crate::SERVER == "ONCEBOX_TEST_MARIADB"
}

/// Runs a test twice: as a user who may do everything, and as one who may only work with the data and call routines.
pub async fn with_both_users<F: Future<Output = ()>>(test: impl Fn(MysqlStore, String) -> F) {
    with_store(&test).await;
    with_store(|_, url| as_worker(url, &test)).await;
}

/// Runs a test as a user who may only work with the data and call routines. The URL is that of the other one.
pub async fn as_worker<F: Future<Output = ()>>(url: String, test: impl Fn(MysqlStore, String) -> F) {
    let name = format!("ob_{:08x}", fastrand::u32(..));
    let (_, server) = url.split_once('@').unwrap();
    let (_, database) = server.split_once('/').unwrap();
    let database = database.split('?').next().unwrap();
    let rights = "SELECT, INSERT, UPDATE, DELETE, EXECUTE";
    execute(&url, &format!("CREATE USER {name}@'%'; GRANT {rights} ON {database}.* TO {name}@'%'")).await;
    let store = MysqlStore::connect(&format!("mysql://{name}@{server}")).await.unwrap();
    // The user goes even if the test fails: nothing else would remove it.
    let outcome = AssertUnwindSafe(test(store, url.clone())).catch_unwind().await;
    execute(&url, &format!("DROP USER {name}@'%'")).await;
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}
