//! A file of an earlier version is brought up to date with what is in it.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::message::Record;
use oncebox_core::names::{ConsumerName, Tenant};
use oncebox_core::store::{
    DeadFilter, DeadLetter, DeadLetters, EventFilter, EventState, Migrate, OutboxAdmin, Status, Store,
};
use oncebox_sqlite::SqliteStore;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions};

#[tokio::test]
async fn dead_letters_keep_their_numbers_and_content() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("app.db");
    let store = SqliteStore::connect(&format!("sqlite://{}", path.display())).await?;
    let mut conn = SqliteConnectOptions::new().filename(&path).connect().await?;
    for step in &store.migrations().await?[..2] {
        sqlx::raw_sql(AssertSqlSafe(step.script.clone())).execute(&mut conn).await?;
    }
    let old = "INSERT INTO oncebox_dead (consumer, message_id, topic, partition, \"offset\", key, payload, headers,
                   timestamp_ms, error, attempts, failed_at)
               VALUES ('stock', 'a', 'orders', 2, 7, x'6b', x'00ff', '[[\"h\",\"v\"]]', 5, 'no', 3, '2026-01-02T03:04:05.678Z'),
                      ('stock', '', 'orders', 2, 8, NULL, NULL, '[]', NULL, 'no', 3, '2026-01-02T03:04:05.678Z'),
                      ('stock', 'gone', 'orders', 2, 9, NULL, NULL, '[]', NULL, 'no', 3, '2026-01-02T03:04:05.678Z');
               DELETE FROM oncebox_dead WHERE message_id = 'gone'";
    sqlx::raw_sql(old).execute(&mut conn).await?;

    let steps: Vec<&str> = store.migrate().await?.iter().map(|step| step.name).collect();
    assert_eq!(steps, ["logs", "delays", "fingerprints", "paused", "operate", "causes"]);
    let all = DeadFilter { limit: 10, ..DeadFilter::default() };
    let numbers: Vec<i64> = store.dead_letters(&all).await?.iter().map(|letter| letter.number).collect();
    assert_eq!(numbers, [1, 2]);
    let first = store.dead_letter(1).await?.ok_or("the letter is gone")?;
    let record = &first.letter.record;
    assert_eq!((record.partition, record.offset, record.timestamp_ms), (2, 7, Some(5)));
    assert_eq!((record.key.as_deref(), record.payload.as_deref()), (Some(&b"k"[..]), Some(&[0, 0xff][..])));
    assert_eq!((record.headers.last("h"), &record.log), (Some(&b"v"[..]), &None));
    assert_eq!((first.letter.message_id.as_deref(), first.failed_at_ms), (Some("a"), 1_767_323_045_678));

    let consumer = ConsumerName::new("stock")?;
    let next = DeadLetter {
        tenant: Tenant::none(),
        message_id: None,
        record: Record::at("orders", 2, 10),
        error: String::new(),
        attempts: 1,
    };
    let mut txn = store.claim(&consumer, &[]).await?.txn;
    store.park(&mut txn, &consumer, &[next]).await?;
    store.commit(txn, None).await?;
    assert_eq!(
        store.dead_letters(&all).await?.last().map(|letter| letter.number),
        Some(4),
        "3 was used before"
    );
    Ok(())
}

#[tokio::test]
async fn events_that_wait_are_there_afterwards() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("app.db");
    let store = SqliteStore::connect(&format!("sqlite://{}", path.display())).await?;
    let mut conn = SqliteConnectOptions::new().filename(&path).connect().await?;
    for step in &store.migrations().await?[..3] {
        sqlx::raw_sql(AssertSqlSafe(step.script.clone())).execute(&mut conn).await?;
    }
    let old = "INSERT INTO oncebox_outbox (topic, key, created_at, attempts, held_until) VALUES
        ('t', 'a', '2026-01-02T03:04:05.678Z', 3, '2999-01-01T00:00:00.000Z'),
        ('t', 'a', '2026-01-02T03:04:06.000Z', 0, '9999-12-31T23:59:59.999Z'),
        ('t', 'b', '2026-01-02T03:04:07.000Z', 0, NULL)";
    sqlx::raw_sql(old).execute(&mut conn).await?;

    assert_eq!(store.migrate().await?[0].name, "delays");
    let status = store.status(100).await?.outbox;
    assert_eq!((status.pending, status.delayed, status.held), (3, 0, 2));
    assert!(status.oldest.is_some_and(|age| age > Duration::from_secs(3600)), "{:?}", status.oldest);
    let all = EventFilter { limit: 10, ..EventFilter::default() };
    let states: Vec<EventState> = store.events(&all).await?.iter().map(|entry| entry.state).collect();
    assert_eq!(states, [EventState::Held, EventState::Held, EventState::Pending]);
    Ok(())
}
