//! What operators see and do.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::{
    Check, EventFilter, EventState, FindingLevel, Outbox, OutboxAdmin, OutboxEntry, Status,
};
use uuid::Uuid;

use crate::file::{File, LONG, TestResult, all_shards};

fn filter() -> EventFilter {
    EventFilter { limit: 100, ..EventFilter::default() }
}

async fn listed(file: &File, filter: EventFilter) -> Result<Vec<i64>, BoxError> {
    Ok(file.store.events(&filter).await?.iter().map(|entry| entry.event.seq).collect())
}

/// Pending, held, parked, published.
async fn one_of_each(file: &File) -> TestResult {
    file.emit("t", &["a", "b", "c", "d"]).await?;
    let leases = file.lease_all().await?;
    file.hold(&leases, 2, LONG, Some("later")).await?;
    file.park(&leases, 3, "never").await?;
    file.publish(&[4], true).await
}

#[tokio::test]
async fn events_are_listed_with_their_state() -> TestResult {
    let file = File::new().await?;
    one_of_each(&file).await?;
    let entries = file.store.events(&filter()).await?;
    let seen = |entry: &OutboxEntry| (entry.state, entry.state_at_ms.is_some(), entry.error.clone());
    let later = Some("later".to_owned());
    assert_eq!(
        entries.iter().map(seen).collect::<Vec<_>>(),
        [
            (EventState::Pending, false, None),
            (EventState::Held, true, later),
            (EventState::Parked, true, Some("never".to_owned())),
            (EventState::Published, true, None),
        ]
    );
    let until = entries[1].state_at_ms.unwrap_or_default() - entries[1].event.created_at_ms;
    assert!((3_590_000..3_700_000).contains(&until), "{until}");

    for (state, seq) in
        [(EventState::Pending, 1), (EventState::Held, 2), (EventState::Parked, 3), (EventState::Published, 4)]
    {
        assert_eq!(listed(&file, EventFilter { state: Some(state), ..filter() }).await?, [seq]);
    }
    assert_eq!(listed(&file, EventFilter { after: 2, ..filter() }).await?, [3, 4]);
    assert_eq!(listed(&file, EventFilter { limit: 2, ..filter() }).await?, [1, 2]);
    assert_eq!(listed(&file, EventFilter { seqs: vec![4, 1], ..filter() }).await?, [1, 4]);
    assert_eq!(listed(&file, EventFilter { key: Some(b"c".to_vec()), ..filter() }).await?, [3]);
    assert_eq!(listed(&file, EventFilter { topic: Some("u".to_owned()), ..filter() }).await?, [0; 0]);
    assert_eq!(listed(&file, EventFilter { id: Some(entries[1].event.id), ..filter() }).await?, [2]);
    Ok(())
}

#[tokio::test]
async fn a_retry_brings_held_and_parked_events_back() -> TestResult {
    let file = File::new().await?;
    one_of_each(&file).await?;
    assert_eq!(file.next("t").await?, [1]);
    assert_eq!(file.store.retry_events(&filter()).await?, 2);
    assert_eq!(file.next("t").await?, [1, 2, 3]);
    assert_eq!(file.store.retry_events(&filter()).await?, 0);
    Ok(())
}

#[tokio::test]
async fn what_is_dropped_is_gone() -> TestResult {
    let file = File::new().await?;
    one_of_each(&file).await?;
    let parked = EventFilter { state: Some(EventState::Parked), ..filter() };
    assert_eq!(file.store.drop_events(&parked).await?, 1);
    assert_eq!(listed(&file, filter()).await?, [1, 2, 4]);
    assert_eq!(file.store.drop_events(&filter()).await?, 3);
    file.emit("t", &["a"]).await?;
    assert_eq!(listed(&file, filter()).await?, [5], "a number is never used again");
    Ok(())
}

#[tokio::test]
async fn published_events_stay_as_long_as_they_should() -> TestResult {
    let file = File::new().await?;
    let keys = vec!["a"; 2500];
    file.emit("t", &keys).await?;
    file.publish(&(1..=2400).collect::<Vec<_>>(), true).await?;
    assert_eq!(file.store.purge_published(LONG).await?, 0);
    let age =
        "UPDATE oncebox_outbox SET published_at = strftime('%Y-%m-%dT%H:%M:%fZ', published_at, '-2 hours')
        WHERE seq <= 2300";
    file.run(age).await?;
    assert_eq!(file.store.purge_published(LONG).await?, 2300);
    assert_eq!(file.store.purge_published(LONG).await?, 0);
    assert_eq!(file.number("SELECT count(*) FROM oncebox_outbox WHERE published_at IS NOT NULL").await?, 100);
    assert_eq!(file.number("SELECT count(*) FROM oncebox_outbox WHERE published_at IS NULL").await?, 100);
    Ok(())
}

#[tokio::test]
async fn relays_and_sweeps_that_are_gone_are_forgotten() -> TestResult {
    let file = File::new().await?;
    file.lease_all().await?;
    file.run(
        "INSERT INTO oncebox_relay VALUES ('gone', 'gone', '2020-01-01T00:00:00.000Z');
         INSERT INTO oncebox_relay SELECT 'late', 'late', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 hour');
         INSERT INTO oncebox_sweep VALUES ('s', 'old', '2020-01-01T00:00:00.000Z'), ('s', 'new', '2999-01-01T00:00:00.000Z');",
    )
    .await?;
    file.store.purge_published(Duration::ZERO).await?;
    assert_eq!(file.number("SELECT count(*) FROM oncebox_relay").await?, 2);
    assert_eq!(file.number("SELECT count(*) FROM oncebox_sweep WHERE row_key = 'new'").await?, 1);
    assert_eq!(file.number("SELECT count(*) FROM oncebox_sweep").await?, 1);
    Ok(())
}

#[tokio::test]
async fn the_status_counts_and_says_who_owns_what() -> TestResult {
    let file = File::new().await?;
    let status = file.store.status(100).await?.outbox;
    assert_eq!((status.pending, status.oldest, status.held, status.parked), (0, None, 0, 0));
    assert_eq!(status.shards.len(), 16);
    assert!(status.shards.iter().all(|shard| shard.owner.is_none() && shard.expires_in.is_none()));

    one_of_each(&file).await?;
    file.run(
        "UPDATE oncebox_outbox SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '-1 hour') WHERE seq = 2",
    )
    .await?;
    let status = file.store.status(100).await?.outbox;
    assert_eq!((status.pending, status.held, status.parked), (2, 1, 1));
    let oldest = status.oldest.unwrap_or_default();
    assert!(oldest >= LONG && oldest < 2 * LONG, "{oldest:?}");
    for (at, shard) in (0..).zip(&status.shards) {
        assert_eq!((shard.shard, shard.owner.as_deref(), shard.epoch), (at, Some("one"), 1));
        assert!(shard.expires_in.is_some_and(|left| left <= LONG && left > LONG / 2));
    }
    assert_eq!(file.store.status(1).await?.outbox.pending, 1, "counts stop at the cap");
    Ok(())
}

#[tokio::test]
async fn a_check_warns_of_events_that_nobody_publishes() -> TestResult {
    let file = File::new().await?;
    let outbox = async || -> Result<_, BoxError> {
        let findings = file.store.check(4 << 20).await?;
        findings.into_iter().find(|finding| finding.subject == "outbox").ok_or_else(|| "no finding".into())
    };
    assert_eq!(outbox().await?.level, FindingLevel::Ok);
    file.emit("t", &["a"]).await?;
    let finding = outbox().await?;
    assert_eq!(finding.level, FindingLevel::Warning);
    assert!(finding.detail.contains("relay"), "{}", finding.detail);
    let relay = Uuid::now_v7();
    file.store.lease(relay, "one", LONG).await?;
    assert_eq!(outbox().await?.level, FindingLevel::Ok);
    file.store.release_shards(relay, &all_shards(), true).await?;
    assert_eq!(outbox().await?.level, FindingLevel::Warning);
    Ok(())
}
