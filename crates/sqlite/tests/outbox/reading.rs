//! What is next, and how much of it.

use oncebox_core::inbox::BatchBounds;
use oncebox_core::store::{EventFilter, EventState, Outbox, OutboxAdmin};

use oncebox_testkit::conformance::ready;

use crate::file::{BOUNDS, File, TestResult, all_shards, seqs};

#[tokio::test]
async fn events_come_in_the_order_of_writing() -> TestResult {
    let file = File::new().await?;
    file.emit("t", &["a", "b", "c", "d", "a", "b"]).await?;
    file.emit("u", &["a"]).await?;
    assert_eq!(file.ready().await?, ["t", "u"]);
    assert_eq!(file.next("t").await?, [1, 2, 3, 4, 5, 6]);
    assert_eq!(file.next("t").await?, [1, 2, 3, 4, 5, 6], "until they are settled");
    assert_eq!(file.next("none").await?, [0; 0]);
    file.publish(&[1, 2, 5], false).await?;
    assert_eq!(file.next("t").await?, [3, 4, 6]);
    file.publish(&[3, 4, 6], true).await?;
    assert_eq!(file.ready().await?, ["u"]);
    Ok(())
}

#[tokio::test]
async fn only_the_shards_that_were_asked_for() -> TestResult {
    let file = File::new().await?;
    let keys: Vec<String> = (0..200).map(|n| format!("key-{n}")).collect();
    file.emit("t", &keys.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut seen = Vec::new();
    for shard in all_shards() {
        assert_eq!(ready(&file.store, &[shard]).await?, [("t".to_owned(), shard)]);
        seen.extend(seqs(&file.store.next_events("t", &[shard], BOUNDS).await?));
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<i64>>());
    assert!(ready(&file.store, &[]).await?.is_empty());
    assert!(file.store.next_events("t", &[], BOUNDS).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn both_bounds_hold_and_one_event_always_fits() -> TestResult {
    let file = File::new().await?;
    file.run(
        "INSERT INTO oncebox_outbox (topic, payload) VALUES ('t', zeroblob(1000)), ('t', zeroblob(400)), ('t', zeroblob(100)),
            ('t', hex(zeroblob(100)))",
    )
    .await?;
    let next = async |messages, bytes| {
        let bounds = BatchBounds { messages, bytes };
        file.store.next_events("t", &all_shards(), bounds).await.map(|events| seqs(&events))
    };
    assert_eq!(next(10, 1).await?, [1]);
    assert_eq!(next(10, 0).await?, [1]);
    assert_eq!(next(10, 1399).await?, [1]);
    assert_eq!(next(10, 1400).await?, [1, 2]);
    assert_eq!(next(10, 1700).await?, [1, 2, 3, 4]);
    assert_eq!(next(3, 9999).await?, [1, 2, 3]);
    assert_eq!(next(1, 9999).await?, [1]);
    Ok(())
}

#[tokio::test]
async fn headers_that_nobody_can_read_are_parked_and_hold_back_nothing() -> TestResult {
    let file = File::new().await?;
    file.run(
        r#"INSERT INTO oncebox_outbox (topic, key, headers)
            VALUES ('t', 'a', '{"a": [1]}'), ('t', 'a', '["a"]'), ('t', 'a', '[["a", "b"]]')"#,
    )
    .await?;
    assert_eq!(file.next("t").await?, [3]);
    let parked = EventFilter { state: Some(EventState::Parked), limit: 9, ..EventFilter::default() };
    let parked = file.store.events(&parked).await?;
    assert_eq!(parked.iter().map(|entry| entry.event.seq).collect::<Vec<_>>(), [1, 2]);
    assert!(
        parked[0].error.as_deref().is_some_and(|error| error.contains("headers")),
        "{:?}",
        parked[0].error
    );
    Ok(())
}
