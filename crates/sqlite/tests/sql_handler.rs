//! Handlers in SQL, on a real file.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::error::{BoxError, Outcome, describe};
use oncebox_core::inbox::{Apply, Failure};
use oncebox_core::message::{Message, Record};
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::outbox::{ByEvent, OutgoingEvent, Relay, events_committed};
use oncebox_core::store::{ErrorClass, Store};
use oncebox_sql::{Handler, PayloadKind, RowRule, SqlHandlerError, Statement};
use oncebox_sqlite::{SqlHandler, SqliteStore};
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

type TestResult = Result<(), BoxError>;

struct Stock {
    store: SqliteStore,
    _directory: tempfile::TempDir,
}

impl Stock {
    async fn new() -> Result<Self, BoxError> {
        let directory = tempfile::tempdir()?;
        let store = SqliteStore::connect(&format!("sqlite://{}/app.db", directory.path().display())).await?;
        store.migrate().await?;
        let stock = Self { store, _directory: directory };
        stock
            .change(
                "CREATE TABLE stock (sku TEXT PRIMARY KEY, on_hand INTEGER NOT NULL CHECK (on_hand >= 0));
                 CREATE TABLE ledger (number INTEGER PRIMARY KEY, message_id TEXT UNIQUE, sku TEXT, qty INTEGER);
                 CREATE TABLE seen (number INTEGER PRIMARY KEY, id, key, payload, headers, topic, partition, \"offset\",
                     \"timestamp\", tenant);
                 CREATE TABLE messages (text TEXT);
                 INSERT INTO stock VALUES ('red', 100), ('blue', 100);",
            )
            .await?;
        Ok(stock)
    }

    async fn change(&self, sql: &str) -> TestResult {
        let mut txn = self.store.claim(&ConsumerName::new("stock")?, &[]).await?.txn;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *txn).await?;
        Ok(self.store.commit(txn, None).await?)
    }

    /// Runs the handler in a transaction, which commits if it succeeds.
    async fn apply(
        &self,
        handler: &SqlHandler,
        messages: &[Message],
    ) -> Result<Result<(), Failure>, BoxError> {
        let mut txn = self.store.claim(&ConsumerName::new("stock")?, &[]).await?.txn;
        let applied = handler.apply(&mut txn, messages).await;
        match applied {
            Ok(()) => self.store.commit(txn, None).await?,
            Err(_) => self.store.rollback(txn).await,
        }
        Ok(applied)
    }

    /// All rows of a query as text, columns separated by `|`.
    async fn rows(&self, sql: &str) -> Result<Vec<String>, BoxError> {
        let mut txn = self.store.claim(&ConsumerName::new("stock")?, &[]).await?.txn;
        let rows = rows(&mut txn, sql).await?;
        self.store.rollback(txn).await;
        Ok(rows)
    }

    async fn prepare(&self, handler: Handler) -> Result<SqlHandler, SqlHandlerError> {
        SqlHandler::prepare(&self.store, &handler, PayloadKind::Json).await
    }
}

async fn rows(conn: &mut SqliteConnection, sql: &str) -> Result<Vec<String>, BoxError> {
    let sql = format!("SELECT concat_ws('|', {sql}");
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(conn).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?)
}

fn each(statements: &[(&str, Option<&str>)]) -> Result<Handler, BoxError> {
    let statement = |(sql, rows): &(&str, Option<&str>)| match rows {
        Some(rows) => Ok(Statement::new(*sql).rows(rows.parse::<RowRule>()?)),
        None => Ok(Statement::new(*sql)),
    };
    Ok(Handler::each(statements.iter().map(statement).collect::<Result<Vec<_>, BoxError>>()?)?)
}

fn batch(statements: &[&str]) -> Result<Handler, BoxError> {
    Ok(Handler::batch(statements.iter().copied())?)
}

fn message(id: &str, payload: impl Into<Bytes>) -> Result<Message, BoxError> {
    let mut record = Record::at("orders", 2, 40);
    record.payload = Some(payload.into());
    Ok(Message::new(MessageId::new(id)?, Tenant::none(), record))
}

fn orders(count: usize) -> Result<Vec<Message>, BoxError> {
    (0..count).map(|n| message(&format!("order-{n:02}"), r#"{"sku": "red", "qty": 1}"#)).collect()
}

const DEDUCT: [(&str, Option<&str>); 2] = [
    (
        "UPDATE stock SET on_hand = on_hand - (:payload->>'qty') WHERE sku = :payload->>'sku' -- deduct",
        Some("1"),
    ),
    ("INSERT INTO ledger (message_id, sku, qty) VALUES (:id, :payload->>'sku', :payload->>'qty');", None),
];

fn failed(applied: Result<(), Failure>) -> Result<Failure, BoxError> {
    applied.err().ok_or_else(|| "the handler succeeded".into())
}

fn is_rejected(failure: &Failure) -> bool {
    matches!(failure.error.downcast_ref::<Outcome>(), Some(Outcome::Reject { .. }))
}

#[tokio::test]
async fn each_runs_for_every_message_in_order() -> TestResult {
    let stock = Stock::new().await?;
    let handler = stock.prepare(each(&DEDUCT)?).await?;
    // More than travel together, and a rest.
    stock.apply(&handler, &orders(37)?).await?.map_err(|failure| failure.error)?;
    assert_eq!(stock.rows("on_hand) FROM stock WHERE sku = 'red'").await?, ["63"]);
    let ledger = stock.rows("message_id) FROM ledger ORDER BY number").await?;
    assert_eq!(ledger, (0..37).map(|n| format!("order-{n:02}")).collect::<Vec<_>>());
    stock.apply(&handler, &[]).await?.map_err(|failure| failure.error)?;
    Ok(())
}

#[tokio::test]
async fn all_parameters_are_bound_and_never_spliced() -> TestResult {
    let stock = Stock::new().await?;
    let sql =
        "INSERT INTO seen (tenant, \"timestamp\", \"offset\", partition, topic, headers, payload, key, id)
               VALUES (:tenant, :timestamp, :offset, :partition, :topic, :headers, :payload, :key, :id)";
    let few = "INSERT INTO seen (tenant, topic) VALUES (:tenant, :topic)";
    let handler = stock.prepare(each(&[(sql, None), (few, Some("1"))])?).await?;
    let mut record = Record::at("o'); DROP TABLE seen; --", 2, 1 << 40);
    record.key = Some("'; DROP TABLE seen; --".into());
    record.payload = Some(r#"{"a": "'\" $1 ?1 :id"}"#.into());
    record.timestamp_ms = Some(1_700_000_000_000);
    record.headers.push("trace", Some("1".into()));
    let odd = Message::new(MessageId::new("'\"$3")?, Tenant::new("acme's")?, record);
    stock.apply(&handler, &vec![odd; 17]).await?.map_err(|failure| failure.error)?;

    let expected = "'\"$3|'; DROP TABLE seen; --|{\"a\": \"'\\\" $1 ?1 :id\"}|{\"trace\":\"1\"}|o'); DROP TABLE seen; --|2|\
                    1099511627776|2023-11-14T22:13:20.000Z|acme's";
    let columns = "id, key, payload, headers, topic, partition, \"offset\", \"timestamp\", tenant";
    let seen = stock.rows(&format!("{columns}) FROM seen WHERE id IS NOT NULL")).await?;
    assert_eq!(seen, vec![expected; 17]);
    let few = stock.rows(&format!("{columns}) FROM seen WHERE id IS NULL")).await?;
    assert_eq!(few, vec!["o'); DROP TABLE seen; --|acme's"; 17]);
    Ok(())
}

#[tokio::test]
async fn a_row_rule_rejects_its_message() -> TestResult {
    let stock = Stock::new().await?;
    let handler = stock.prepare(each(&DEDUCT)?).await?;
    for place in [0, 5, 17, 20] {
        let mut messages = orders(21)?;
        messages[place] = message("none", r#"{"sku": "green", "qty": 1}"#)?;
        let failure = failed(stock.apply(&handler, &messages).await?)?;
        assert_eq!(failure.at, Some(place));
        assert!(is_rejected(&failure));
        assert_eq!(failure.error.to_string(), "statement 1 touched 0 rows, expected 1");
    }
    assert!(stock.rows("number) FROM ledger").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn rows_that_are_returned_count_too() -> TestResult {
    let stock = Stock::new().await?;
    let cases = [
        ("SELECT 1 FROM stock WHERE sku = :payload->>'sku'", "1", true),
        ("SELECT 1 FROM stock", "1", false),
        ("UPDATE stock SET on_hand = 0 RETURNING sku", "2", true),
        ("UPDATE stock SET on_hand = 0 WHERE sku = 'none' RETURNING sku", "1..", false),
        ("INSERT INTO stock VALUES ('red', 0) ON CONFLICT DO NOTHING", "0", true),
        ("DELETE FROM stock", "..1", false),
    ];
    for (sql, rule, good) in cases {
        // What an earlier statement changed must not count for a later one.
        let touch = "INSERT INTO messages VALUES ('x'), ('y'), ('z')";
        let handler = stock.prepare(each(&[(touch, Some("3")), (sql, Some(rule))])?).await?;
        let mut txn = stock.store.claim(&ConsumerName::new("stock")?, &[]).await?.txn;
        let applied = handler.apply(&mut txn, &orders(1)?).await;
        stock.store.rollback(txn).await;
        assert_eq!(applied.is_ok(), good, "{sql}: {applied:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_error_names_its_statement_and_message() -> TestResult {
    let stock = Stock::new().await?;
    let handler = stock.prepare(each(&DEDUCT)?).await?;
    let mut messages = orders(20)?;
    messages[18] = messages[3].clone();
    let failure = failed(stock.apply(&handler, &messages).await?)?;
    assert_eq!(failure.at, Some(18));
    assert!(!is_rejected(&failure));
    let text = describe(failure.error.as_ref());
    assert!(text.starts_with("statement 2 failed: ") && text.contains("ledger.message_id"), "{text}");
    let error: &(dyn Error + 'static) = failure.error.as_ref();
    assert_eq!(SqliteStore::classify(error), ErrorClass::Failed);
    Ok(())
}

/// SQLite has one code for both.
#[tokio::test]
async fn a_table_that_is_gone_is_told_apart_from_a_value_that_is_refused() -> TestResult {
    let stock = Stock::new().await?;
    let handlers = [
        each(&[("INSERT INTO ledger (message_id, sku) VALUES (:id, json_extract(:key, '$.sku'))", None)])?,
        batch(&["INSERT INTO ledger (message_id, sku) SELECT id, json_extract(key, '$.sku') FROM messages"])?,
    ];
    for handler in handlers {
        let handler = stock.prepare(handler).await?;
        let class = async |key: &'static str| -> Result<Option<ErrorClass>, BoxError> {
            let mut txn = stock.store.claim(&ConsumerName::new("stock")?, &[]).await?.txn;
            let applied = handler.apply(&mut txn, &[keyed("a", key)?]).await;
            stock.store.rollback(txn).await;
            Ok(applied.err().map(|failure| SqliteStore::classify(failure.error.as_ref())))
        };
        assert_eq!(class("{}").await?, None);
        assert_eq!(class("{").await?, Some(ErrorClass::Failed));
        stock.change("ALTER TABLE ledger RENAME TO elsewhere").await?;
        assert_eq!(class("{}").await?, Some(ErrorClass::Environment));
        assert_eq!(class("{").await?, Some(ErrorClass::Environment));
        stock
            .change("ALTER TABLE elsewhere RENAME TO ledger; ALTER TABLE ledger RENAME COLUMN sku TO article")
            .await?;
        assert_eq!(class("{}").await?, Some(ErrorClass::Environment));
        stock.change("ALTER TABLE ledger RENAME COLUMN article TO sku").await?;
        assert_eq!(class("{}").await?, None, "it heals by itself");
    }
    Ok(())
}

fn keyed(id: &str, key: &'static str) -> Result<Message, BoxError> {
    let mut record = Record::at("orders", 0, 0);
    record.key = Some(Bytes::from_static(key.as_bytes()));
    Ok(Message::new(MessageId::new(id)?, Tenant::none(), record))
}

#[tokio::test]
async fn a_payload_that_is_no_json_is_rejected_before_anything_runs() -> TestResult {
    let stock = Stock::new().await?;
    for handler in
        [each(&DEDUCT)?, batch(&["INSERT INTO ledger (message_id, sku) SELECT id, payload FROM messages"])?]
    {
        let handler = stock.prepare(handler).await?;
        let mut messages = orders(3)?;
        messages[1] = message("bad", "{")?;
        let mut txn = stock.store.claim(&ConsumerName::new("stock")?, &[]).await?.txn;
        let failure = failed(handler.apply(&mut txn, &messages).await)?;
        assert_eq!(failure.at, Some(1));
        assert!(is_rejected(&failure) && failure.error.to_string().contains("not JSON"), "{failure:?}");
        assert!(rows(&mut txn, "number) FROM ledger").await?.is_empty());
        stock.store.rollback(txn).await;
    }
    Ok(())
}

#[tokio::test]
async fn payloads_are_text_or_blobs_and_tombstones_null() -> TestResult {
    let stock = Stock::new().await?;
    let tombstone = Message::new(MessageId::new("b")?, Tenant::none(), Record::at("orders", 0, 0));
    let bytes: Bytes = vec![0, 0xff, b'x'].into();
    let cases = [
        (PayloadKind::Json, Bytes::from("[1]"), "text|5B315D"),
        (PayloadKind::Text, Bytes::from("it's"), "text|69742773"),
        (PayloadKind::Bytes, bytes, "blob|00FF78"),
        (PayloadKind::Bytes, Bytes::new(), "blob|"),
    ];
    for (kind, payload, expected) in cases {
        let messages = [message("a", payload)?, tombstone.clone()];
        let by_message = each(&[("INSERT INTO seen (id, payload) VALUES (:id, :payload)", None)])?;
        let by_batch = batch(&["INSERT INTO seen (id, payload) SELECT id, payload FROM messages"])?;
        for handler in [by_message, by_batch] {
            let handler = SqlHandler::prepare(&stock.store, &handler, kind).await?;
            stock.apply(&handler, &messages).await?.map_err(|failure| failure.error)?;
            let seen = stock.rows("typeof(payload), hex(payload)) FROM seen ORDER BY number").await?;
            assert_eq!(seen, [expected, "null|"], "{kind:?} {handler:?}");
            stock.change("DELETE FROM seen").await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn batch_statements_see_the_fresh_messages() -> TestResult {
    let stock = Stock::new().await?;
    let handler = batch(&[
        "UPDATE stock SET on_hand = on_hand - m.qty
         FROM (SELECT payload->>'sku' AS sku, sum(payload->>'qty') AS qty FROM messages GROUP BY 1) AS m
         WHERE m.sku = stock.sku",
        "WITH mine AS (SELECT * FROM messages) -- own
         INSERT INTO ledger (message_id, sku, qty) SELECT id, payload->>'sku', payload->>'qty' FROM mine -- end",
        "INSERT INTO seen (id, topic, partition, \"offset\", tenant, \"timestamp\", headers)
         SELECT id, topic, partition, \"offset\", tenant, \"timestamp\", headers FROM messages",
    ])?;
    let handler = stock.prepare(handler).await?;
    for round in 0..2 {
        let messages: Vec<_> = (0..30)
            .map(|n| message(&format!("{round}-{n:02}"), r#"{"sku": "red", "qty": 1}"#))
            .collect::<Result<_, _>>()?;
        stock.apply(&handler, &messages).await?.map_err(|failure| failure.error)?;
    }
    assert_eq!(stock.rows("on_hand) FROM stock WHERE sku = 'red'").await?, ["40"]);
    let ledger = stock.rows("message_id) FROM ledger ORDER BY number").await?;
    let expected: Vec<_> = (0..2).flat_map(|round| (0..30).map(move |n| format!("{round}-{n:02}"))).collect();
    assert_eq!(ledger, expected);
    let seen = stock
        .rows("id, topic, partition, \"offset\", tenant, \"timestamp\", headers) FROM seen LIMIT 1")
        .await?;
    assert_eq!(seen, ["0-00|orders|2|40||{}"]);
    Ok(())
}

#[tokio::test]
async fn a_failed_batch_leaves_no_messages_for_the_next() -> TestResult {
    let stock = Stock::new().await?;
    let handler = stock
        .prepare(batch(&[
            "INSERT INTO ledger (message_id) SELECT id FROM messages",
            "INSERT INTO stock SELECT 'x', -1 FROM messages WHERE payload->>'qty' > 99",
        ])?)
        .await?;
    let mut messages = orders(3)?;
    messages.push(message("poison", r#"{"qty": 100}"#)?);
    let failure = failed(stock.apply(&handler, &messages).await?)?;
    assert_eq!(failure.at, None, "nobody can tell in a batch");
    assert!(describe(failure.error.as_ref()).starts_with("statement 2 failed"), "{failure:?}");
    let failure = failed(stock.apply(&handler, &messages[3..]).await?)?;
    assert_eq!(failure.at, Some(0), "in a batch of one it is clear");
    stock.apply(&handler, &messages[..3]).await?.map_err(|failure| failure.error)?;
    assert_eq!(stock.rows("message_id) FROM ledger").await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn a_table_of_the_application_may_be_called_messages() -> TestResult {
    let stock = Stock::new().await?;
    stock.change("INSERT INTO messages VALUES ('mine')").await?;
    let by_batch =
        stock.prepare(batch(&["INSERT INTO ledger (message_id) SELECT id FROM messages"])?).await?;
    let by_message =
        stock.prepare(each(&[("INSERT INTO seen (id) SELECT text FROM messages", Some("1"))])?).await?;
    stock.apply(&by_batch, &orders(2)?).await?.map_err(|failure| failure.error)?;
    stock.apply(&by_message, &orders(1)?).await?.map_err(|failure| failure.error)?;
    assert_eq!(stock.rows("message_id) FROM ledger").await?, ["order-00", "order-01"]);
    assert_eq!(stock.rows("id) FROM seen").await?, ["mine"]);
    Ok(())
}

#[tokio::test]
async fn all_bad_statements_are_reported_with_their_numbers() -> TestResult {
    let stock = Stock::new().await?;
    let statements = [
        ("UPDATE nowhere SET a = :id", None),
        ("SELECT 1", None),
        ("INSERT INTO ledger (colour) VALUES (:id)", None),
        ("SELEC :id", None),
    ];
    let Err(SqlHandlerError::Statements(bad)) = stock.prepare(each(&statements)?).await else {
        return Err("the statements were accepted".into());
    };
    assert_eq!(bad.iter().map(|bad| bad.number).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(bad[0].reason, "no such table: nowhere");
    assert_eq!(bad[0].sql, "UPDATE nowhere SET a = :id");
    let text = SqlHandlerError::Statements(bad).to_string();
    assert!(
        text.lines().count() == 3 && text.starts_with("statement 1: no such table: nowhere: UPDATE"),
        "{text}"
    );

    let Err(error) =
        stock.prepare(batch(&["DELETE FROM nowhere WHERE id IN (SELECT id FROM messages)"])?).await
    else {
        return Err("the statement was accepted".into());
    };
    assert!(error.to_string().contains("no such table: nowhere"), "{error}");
    Ok(())
}

#[tokio::test]
async fn an_event_of_a_statement_reaches_the_relay_at_once() -> TestResult {
    let stock = Stock::new().await?;
    let (sender, mut delivered) = tokio::sync::mpsc::unbounded_channel();
    let sink = ByEvent::from_fn(move |event: OutgoingEvent| {
        let sender = sender.clone();
        async move { Ok(sender.send(event)?) }
    });
    // It would not look again by itself while this test runs.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = Relay::new(stock.store.clone()).poll(Duration::from_secs(3600)).sink(sink);
    let relay = tokio::spawn(relay.run(async { stopped.await.unwrap_or_default() }));
    let mut next = async || {
        let next = tokio::time::timeout(Duration::from_secs(60), delivered.recv()).await?;
        next.ok_or_else(|| BoxError::from("the relay ended"))
    };

    stock.change("INSERT INTO oncebox_outbox (topic, payload) VALUES ('warm', 'up')").await?;
    events_committed();
    assert_eq!(next().await?.payload(), Some(&Bytes::from("up")));

    let of_each = each(&[(
        "INSERT INTO OnceBox_Outbox (topic, key, payload, causation_id)
         VALUES ('stock.changed', :key, json_object('sku', :payload->>'sku'), :id)",
        None,
    )])?;
    let of_batch = batch(&[
        "INSERT INTO oncebox_outbox (topic, payload) SELECT 'stock.changed', payload->>'sku' FROM messages",
    ])?;
    for (handler, payload) in [(of_each, r#"{"sku":"red"}"#), (of_batch, "red")] {
        let handler = stock.prepare(handler).await?;
        let applied = stock.apply(&handler, &[message("m-1", r#"{"sku": "red"}"#)?]).await?;
        applied.map_err(|failure| failure.error)?;
        let event = next().await?;
        assert_eq!((event.topic(), event.payload()), ("stock.changed", Some(&Bytes::from(payload))));
    }
    stop.send(()).map_err(|()| "the relay ended")?;
    relay.await??;
    Ok(())
}
