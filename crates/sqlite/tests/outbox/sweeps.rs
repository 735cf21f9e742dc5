//! Rows become events, once in a window.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::{ErrorClass, Outbox, OutboxAdmin, Sweep};
use serde_json::{Value, json};

use crate::file::{BOUNDS, File, LONG, TestResult, all_shards};

fn late(sql: &str) -> Sweep {
    Sweep {
        name: "late".to_owned(),
        query: sql.to_owned(),
        row_key: "id".to_owned(),
        window: LONG,
        topic: "orders.late".to_owned(),
        event_key: None,
        limit: 100,
    }
}

async fn orders() -> Result<File, BoxError> {
    let file = File::new().await?;
    file.run(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, amount REAL, note BLOB, paid BOOLEAN);
         INSERT INTO orders VALUES (7, 'ann', 1.5, x'ff00', 0), (8, NULL, 2, NULL, 1);",
    )
    .await?;
    Ok(file)
}

#[tokio::test]
async fn rows_become_events_with_their_columns() -> TestResult {
    let file = orders().await?;
    let sweep = Sweep {
        event_key: Some("customer".to_owned()),
        ..late("SELECT id, customer, amount, note, paid FROM orders -- all of them")
    };
    file.store.check_sweep(&sweep).await?;
    assert_eq!(file.store.sweep(&sweep).await?, 2);
    let events = file.store.next_events("orders.late", &all_shards(), BOUNDS).await?;
    let payloads: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_slice(event.payload.as_deref().unwrap_or_default()))
        .collect::<Result<_, _>>()?;
    assert_eq!(
        payloads,
        [
            json!({"id": 7, "customer": "ann", "amount": 1.5, "note": "/wA=", "paid": 0}),
            json!({"id": 8, "customer": null, "amount": 2.0, "note": null, "paid": 1}),
        ]
    );
    let keys: Vec<_> = events.iter().map(|event| event.key.as_deref()).collect();
    assert_eq!(keys, [Some(b"ann".as_slice()), None]);
    for event in &events {
        assert_eq!(event.headers.last("oncebox-sweep"), Some(b"late".as_slice()));
        assert_eq!(event.headers.last("content-type"), Some(b"application/json".as_slice()));
    }
    Ok(())
}

#[tokio::test]
async fn a_row_is_emitted_once_in_the_window() -> TestResult {
    let file = orders().await?;
    let sweep = late("SELECT id FROM orders UNION ALL SELECT id FROM orders");
    assert_eq!(file.store.sweep(&sweep).await?, 2, "a key that comes twice is one");
    assert_eq!(file.store.sweep(&sweep).await?, 0);
    file.run("INSERT INTO orders (id) VALUES (9)").await?;
    assert_eq!(file.store.sweep(&sweep).await?, 1);
    assert_eq!(file.store.sweep(&Sweep { name: "other".to_owned(), ..sweep.clone() }).await?, 3);
    file.run("UPDATE oncebox_sweep SET silent_until = '2020-01-01T00:00:00.000Z' WHERE row_key = '7'")
        .await?;
    assert_eq!(file.store.sweep(&sweep).await?, 1);
    assert_eq!(file.store.sweep(&sweep).await?, 0, "a new window began");
    let endless = Sweep { name: "endless".to_owned(), window: Duration::MAX, ..sweep };
    assert_eq!((file.store.sweep(&endless).await?, file.store.sweep(&endless).await?), (3, 0));
    Ok(())
}

#[tokio::test]
async fn what_is_more_than_the_limit_comes_with_the_next_run() -> TestResult {
    let file = orders().await?;
    let rows =
        "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 250) SELECT id FROM n";
    let sweep = late(rows);
    assert_eq!(file.store.sweep(&sweep).await?, 100);
    assert_eq!(file.store.sweep(&sweep).await?, 100);
    assert_eq!(file.store.sweep(&sweep).await?, 50);
    assert_eq!(file.number("SELECT count(DISTINCT payload) FROM oncebox_outbox").await?, 250);
    Ok(())
}

#[tokio::test]
async fn a_wrong_sweep_says_what_is_wrong() -> TestResult {
    let file = orders().await?;
    let id = "SELECT id FROM orders";
    let other_key = Sweep { row_key: "number".to_owned(), ..late("SELECT id, amount FROM orders") };
    let no_event_key = Sweep { event_key: Some("sku".to_owned()), ..late(id) };
    for (sweep, reason) in [
        (other_key, "key names the column number, its query has id, amount"),
        (no_event_key, "emit.key names the column sku, its query has id"),
        (late("SELECT id FROM missing"), "no such table: missing"),
        (late("DELETE FROM orders RETURNING id"), "must begin with SELECT or WITH"),
        (late("WITH x AS (SELECT 1) DELETE FROM orders RETURNING id"), "syntax error"),
        (late("SELECT id FROM orders; DELETE FROM orders"), "statement"),
        (late("SELECT id FROM orders) AS r; --"), "syntax error"),
        (late("SELECT id FROM orders WHERE customer = :key"), "no parameters"),
        (late("SELECT id FROM orders WHERE customer = ?"), "no parameters"),
        (late(""), "empty"),
        (Sweep { topic: "no topic".to_owned(), ..late(id) }, "not a topic"),
    ] {
        for error in [file.store.check_sweep(&sweep).await.err(), file.store.sweep(&sweep).await.err()] {
            let Some(error) = error else { return Err(format!("accepted: {}", sweep.query).into()) };
            assert_eq!(error.class, ErrorClass::Failed);
            assert!(error.to_string().contains("sweep late"), "{error}");
            assert!(error.to_string().contains(reason), "{}: {error}", sweep.query);
        }
    }
    assert_eq!(file.store.sweep(&late("SELECT NULL AS id")).await?, 0, "a row without a key is left out");
    assert_eq!(file.number("SELECT count(*) FROM orders").await?, 2);
    assert_eq!(file.number("SELECT count(*) FROM oncebox_outbox").await?, 0);
    assert_eq!(file.store.sweep(&late(id)).await?, 2, "the store goes on");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeps_that_run_at_once_emit_each_row_once() -> TestResult {
    let file = orders().await?;
    let sweeping: Vec<_> = (0..6)
        .map(|_| {
            let store = file.store.clone();
            tokio::spawn(async move { store.sweep(&late("SELECT id FROM orders")).await })
        })
        .collect();
    let mut emitted = 0;
    for swept in sweeping {
        emitted += swept.await??;
    }
    assert_eq!(emitted, 2);
    Ok(())
}
