//! A held event holds back its key, and nothing else.

use std::time::Duration;

use oncebox_core::inbox::BatchBounds;
use oncebox_core::store::{Deliveries, EventFilter, HeldEvent, Outbox, OutboxAdmin};
use uuid::Uuid;

use crate::file::{BOUNDS, File, LONG, TestResult, all_shards, seqs};

#[tokio::test]
async fn later_events_of_the_key_wait_and_come_back_in_order() -> TestResult {
    let file = File::new().await?;
    file.emit("t", &["a", "b", "a", "b", "a"]).await?;
    let leases = file.lease_all().await?;
    file.hold(&leases, 1, LONG, Some("receiver is away")).await?;
    assert_eq!(file.next("t").await?, [2, 4]);
    let waiting = "SELECT count(*) FROM oncebox_outbox
        WHERE seq IN (3, 5) AND held_until IS NOT NULL AND attempts = 0 AND error IS NULL";
    assert_eq!(file.number(waiting).await?, 2, "what waits left the ready events");

    // What is written meanwhile waits as well, whether its key is text or bytes.
    file.run(
        "INSERT INTO oncebox_outbox (topic, key) VALUES ('t', 'a'), ('t', x'61'), ('t', NULL), ('u', 'a')",
    )
    .await?;
    assert_eq!(file.next("t").await?, [2, 4, 8]);
    assert_eq!(file.next("u").await?, [9], "another topic does not wait");

    file.let_time_pass().await?;
    file.emit("t", &["a"]).await?;
    assert_eq!(file.next("t").await?, [1, 2, 3, 4, 5, 6, 7, 8, 10]);
    file.publish(&[1, 2, 3, 4, 5, 6, 7, 8], false).await?;
    assert_eq!(file.next("t").await?, [10]);
    Ok(())
}

#[tokio::test]
async fn what_fails_again_takes_its_followers_along() -> TestResult {
    let file = File::new().await?;
    file.emit("t", &["a", "a", "a", "b"]).await?;
    let leases = file.lease_all().await?;
    file.hold(&leases, 1, LONG, Some("no")).await?;
    assert_eq!(file.next("t").await?, [4]);
    file.let_time_pass().await?;
    file.hold(&leases, 1, LONG, Some("no again")).await?;
    assert_eq!(file.next("t").await?, [4], "the followers' own time has come, but not that of the first");
    assert_eq!(file.ready().await?, ["t"]);
    file.publish(&[4], false).await?;
    assert!(file.ready().await?.is_empty(), "nothing is due any more");
    assert_eq!(file.number("SELECT attempts FROM oncebox_outbox WHERE seq = 1").await?, 2);

    file.park(&leases, 1, "never").await?;
    assert_eq!(file.next("t").await?, [2, 3], "a parked event holds back nothing");
    Ok(())
}

#[tokio::test]
async fn a_hold_outlives_its_relay() -> TestResult {
    let file = File::new().await?;
    file.emit("t", &["a", "a"]).await?;
    let relay = Uuid::now_v7();
    let leases = file.store.lease(relay, "one", LONG).await?.held;
    file.hold(&leases, 1, LONG, Some("no")).await?;
    file.store.release_shards(relay, &all_shards(), true).await?;
    let leases = file.lease_all().await?;
    assert!(file.ready().await?.contains(&"t".to_owned()));
    assert!(file.next("t").await?.is_empty(), "the new relay waits as well");
    assert!(file.ready().await?.is_empty());
    file.let_time_pass().await?;
    assert_eq!(file.ready().await?, ["t"]);
    assert_eq!(file.next("t").await?, [1, 2]);
    file.hold(&leases, 1, Duration::ZERO, None).await?;
    assert_eq!(file.next("t").await?, [1, 2], "no time at all is over at once");
    assert_eq!(
        file.number("SELECT attempts FROM oncebox_outbox WHERE seq = 1").await?,
        1,
        "it was not tried"
    );
    Ok(())
}

#[tokio::test]
async fn one_stuck_key_with_many_events_does_not_hide_the_others() -> TestResult {
    let file = File::new().await?;
    let mut keys = vec!["stuck"; 3000];
    keys.push("free");
    file.emit("t", &keys).await?;
    let leases = file.lease_all().await?;
    file.hold(&leases, 1, LONG, Some("no")).await?;
    let bounds = BatchBounds { messages: 500, ..BOUNDS };
    assert_eq!(seqs(&file.store.next_events("t", &all_shards(), bounds).await?), [3001]);

    file.let_time_pass().await?;
    let mut next = 1;
    while next < 3001 {
        // The key goes on in order, in batches, and fresh events come last.
        file.emit("t", &["stuck"]).await?;
        let events = seqs(&file.store.next_events("t", &all_shards(), bounds).await?);
        let of_key: Vec<i64> = events.into_iter().filter(|seq| *seq != 3001).collect();
        assert_eq!(of_key, (next..next + of_key.len() as i64).collect::<Vec<_>>());
        assert!(!of_key.is_empty());
        next += of_key.len() as i64;
        file.publish(&of_key, false).await?;
    }
    Ok(())
}

#[tokio::test]
async fn only_the_first_held_event_of_a_key_has_a_time() -> TestResult {
    let file = File::new().await?;
    file.emit("t", &["a", "a", "a", "a"]).await?;
    let leases = file.lease_all().await?;
    file.hold(&leases, 2, LONG, Some("no")).await?;
    assert_eq!(file.next("t").await?, [1], "what is before it goes on");
    let held = [(1, Some("no")), (3, Some("no")), (4, None)];
    let held =
        held.map(|(seq, error)| HeldEvent { seq, delay: Duration::ZERO, error: error.map(str::to_owned) });
    let leases = leases.clone();
    file.store
        .record_deliveries(&Deliveries { leases, held: held.to_vec(), ..Deliveries::default() })
        .await?;
    let times = "SELECT count(*) FROM oncebox_outbox WHERE held_until < '9999'";
    assert_eq!(file.number(times).await?, 1);
    let one = BatchBounds { messages: 1, ..BOUNDS };
    for seq in 1..=4 {
        assert_eq!(seqs(&file.store.next_events("t", &all_shards(), one).await?), [seq]);
        file.publish(&[seq], seq % 2 == 0).await?;
    }
    assert!(file.ready().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn whatever_takes_the_first_away_the_others_go_on() -> TestResult {
    let file = File::new().await?;
    let leases = file.lease_all().await?;
    for (topic, first) in
        [("removed", 1), ("kept", 4), ("parked", 7), ("dropped", 10), ("retried", 13), ("by-hand", 16)]
    {
        file.emit(topic, &["a", "a", "a"]).await?;
        file.hold(&leases, first, LONG, Some("no")).await?;
        assert!(file.next(topic).await?.is_empty());
        let filter = EventFilter { seqs: vec![first], limit: 1, ..EventFilter::default() };
        match topic {
            "removed" => file.publish(&[first], false).await?,
            "kept" => file.publish(&[first], true).await?,
            "parked" => file.park(&leases, first, "never").await?,
            "dropped" => assert_eq!(file.store.drop_events(&filter).await?, 1),
            "retried" => {
                assert_eq!(file.store.retry_events(&filter).await?, 1);
                assert_eq!(file.next(topic).await?, [first, first + 1, first + 2]);
                file.publish(&[first], false).await?;
            }
            _ => {
                file.run("DELETE FROM oncebox_outbox WHERE seq = 16").await?;
                assert!(file.next(topic).await?.is_empty());
                file.store.purge_published(LONG).await?;
            }
        }
        assert!(file.ready().await?.contains(&topic.to_owned()), "{topic}");
        assert_eq!(file.next(topic).await?, [first + 1, first + 2], "{topic}");
    }
    Ok(())
}

#[tokio::test]
async fn an_event_in_front_that_is_pending_again_goes_first() -> TestResult {
    let file = File::new().await?;
    file.emit("t", &["a", "a", "a"]).await?;
    let leases = file.lease_all().await?;
    file.park(&leases, 1, "no").await?;
    file.hold(&leases, 2, LONG, Some("no")).await?;
    assert!(file.next("t").await?.is_empty());
    file.run("UPDATE oncebox_outbox SET parked_at = NULL WHERE seq = 1").await?;
    assert_eq!(file.next("t").await?, [1]);
    file.let_time_pass().await?;
    assert_eq!(file.next("t").await?, [1, 2, 3]);
    Ok(())
}

#[tokio::test]
async fn events_without_a_key_wait_for_nobody() -> TestResult {
    let file = File::new().await?;
    file.run("INSERT INTO oncebox_outbox (topic) VALUES ('t'), ('t'), ('t')").await?;
    let leases = file.lease_all().await?;
    file.hold(&leases, 1, LONG, Some("no")).await?;
    assert_eq!(file.next("t").await?, [2, 3]);
    file.let_time_pass().await?;
    assert_eq!(file.next("t").await?, [1, 2, 3]);
    Ok(())
}
