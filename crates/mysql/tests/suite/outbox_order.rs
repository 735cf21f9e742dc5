//! Held keys, and what happens when transactions meet at the outbox.

use std::time::Duration;

use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{Deliveries, ErrorClass, HeldEvent, Outbox, OutboxAdmin, ParkedEvent, StoreResult};
use oncebox_testkit::conformance::ready;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::by_hand::{HOUR, HandRelay, MANY, emit, every, text};
use super::support::{execute, number, until_someone_waits, with_store};

/// A connection with an open transaction.
async fn begun(url: &str, sql: &str) -> MySqlConnection {
    let mut conn = MySqlConnection::connect(url).await.unwrap();
    let sql = format!("START TRANSACTION; {sql}");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    conn
}

async fn commit(mut conn: MySqlConnection) {
    sqlx::raw_sql("COMMIT").execute(&mut conn).await.unwrap();
}

fn same(relay: &HandRelay) -> HandRelay {
    HandRelay { store: relay.store.clone(), id: relay.id, leases: relay.leases.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_transaction_elsewhere_stops_nobody() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let mut open = begun(&url, "DO 0").await;
        open.emit(Event::to("t").key("a").bytes("late")).await.unwrap();
        let seqs = emit(&store, "t", &[("a", "early"), ("b", "other"), ("c", "held"), ("d", "parked")]).await;
        assert_eq!(relay.next("t").await.len(), 4);
        // Whatever is done with the others: nothing waits for the one that is not committed. One by one, and as a list that
        // names most of the table.
        relay.hold(seqs[2], HOUR).await;
        relay.park(seqs[3]).await;
        assert_eq!(relay.texts("t").await, ["early", "other"]);
        relay.publish(seqs[..2].to_vec()).await;
        assert_eq!(store.retry_events(&every()).await.unwrap(), 2);
        assert_eq!(store.drop_events(&every()).await.unwrap(), 2);
        store.purge_published(Duration::ZERO).await.unwrap();
        commit(open).await;
        assert_eq!(relay.texts("t").await, ["late"], "its number is lower than those that were published");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_lost_its_shards_cannot_hold_or_park() {
    with_store(|store, _| async move {
        let old = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "held"), ("b", "parked"), ("c", "published")]).await;
        store.release_shards(old.id, &old.shards(), true).await.unwrap();
        let new = HandRelay::start(&store).await;
        assert!(new.leases.held.iter().zip(&old.leases.held).all(|(new, old)| new.epoch > old.epoch));
        let error = "too late".to_owned();
        let late = Deliveries {
            published: vec![seqs[2]],
            held: vec![HeldEvent { seq: seqs[0], delay: HOUR, error: Some(error.clone()) }],
            parked: vec![ParkedEvent { seq: seqs[1], error }],
            ..Deliveries::default()
        };
        old.record_deliveries(late.clone()).await;
        assert_eq!(new.texts("t").await, ["held", "parked"], "a confirmed event is removed by anybody");
        new.record_deliveries(late).await;
        assert!(new.next("t").await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_events_pass_to_the_next_relay() {
    with_store(|store, _| async move {
        let old = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")]).await;
        old.hold(seqs[0], HOUR).await;
        assert_eq!(old.texts("t").await, ["4"]);
        store.release_shards(old.id, &old.shards(), true).await.unwrap();
        let new = HandRelay::start(&store).await;
        assert_eq!(new.texts("t").await, ["4"]);
        // The old one hears only now that the first was delivered.
        old.publish(vec![seqs[0]]).await;
        assert_eq!(new.texts("t").await, ["2", "3", "4"]);
        new.hold(seqs[1], Duration::ZERO).await;
        assert_eq!(new.texts("t").await, ["2", "3", "4"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_not_put_behind_one_that_is_just_going() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "going"), ("a", "next")]).await;
        relay.hold(seqs[0], HOUR).await;
        let going = begun(&url, &format!("DELETE FROM oncebox_outbox WHERE seq = {}", seqs[0])).await;
        let (reader, shards) = (store.clone(), relay.shards());
        let reading = tokio::spawn(async move { reader.next_events("t", &shards, MANY).await.unwrap() });
        until_someone_waits(&url).await;
        commit(going).await;
        reading.await.unwrap();
        assert_eq!(relay.texts("t").await, ["next"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_finds_those_that_were_just_put_behind() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "going"), ("a", "next")]).await;
        relay.hold(seqs[0], HOUR).await;
        // What a reader does, before its commit.
        let put_behind = format!(
            "SELECT seq FROM oncebox_outbox WHERE seq IN ({first}, {next}) FOR UPDATE; UPDATE oncebox_outbox \
             SET held_until = '9999-12-31 23:59:59.999999' WHERE seq = {next}",
            first = seqs[0],
            next = seqs[1]
        );
        let reading = begun(&url, &put_behind).await;
        let (publisher, first) = (same(&relay), seqs[0]);
        let publishing = tokio::spawn(async move { publisher.publish(vec![first]).await });
        until_someone_waits(&url).await;
        commit(reading).await;
        publishing.await.unwrap();
        assert_eq!(relay.texts("t").await, ["next"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_finds_the_one_behind_another_that_goes() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "1"), ("a", "2"), ("a", "3")]).await;
        relay.hold(seqs[0], HOUR).await;
        assert!(relay.next("t").await.is_empty());
        let operator = begun(&url, &format!("DELETE FROM oncebox_outbox WHERE seq = {}", seqs[1])).await;
        let (publisher, first) = (same(&relay), seqs[0]);
        let publishing = tokio::spawn(async move { publisher.publish(vec![first]).await });
        until_someone_waits(&url).await;
        commit(operator).await;
        publishing.await.unwrap();
        assert!(!ready(&store, &relay.shards()).await.unwrap().is_empty(), "nobody has to look by chance");
        assert_eq!(relay.texts("t").await, ["3"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_leaves_behind_waits_for_the_housekeeping_and_is_not_overtaken() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")]).await;
        relay.hold(seqs[0], HOUR).await;
        relay.hold(seqs[1], HOUR).await;
        assert!(relay.next("t").await.is_empty());
        execute(&url, &format!("DELETE FROM oncebox_outbox WHERE seq IN ({}, {})", seqs[0], seqs[1])).await;
        assert!(ready(&store, &relay.shards()).await.unwrap().is_empty());
        store.purge_published(HOUR).await.unwrap();
        assert_eq!(ready(&store, &relay.shards()).await.unwrap().len(), 1);
        assert_eq!(relay.texts("t").await, ["3", "4"]);

        // Without the housekeeping a later event of the key brings them along.
        relay.hold(seqs[2], HOUR).await;
        assert!(relay.next("t").await.is_empty());
        execute(&url, &format!("DELETE FROM oncebox_outbox WHERE seq = {}", seqs[2])).await;
        let last = emit(&store, "t", &[("a", "5")]).await;
        assert_eq!(relay.texts("t").await, ["4", "5"]);
        relay.publish(vec![seqs[3]]).await;
        relay.publish(last).await;
        assert_eq!(number(&url, "SELECT COUNT(*) FROM oncebox_outbox").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn housekeeping_looks_at_all_keys_and_leaves_those_in_order_alone() {
    with_store(|store, url| async move {
        // More keys than one step has; every second one waits for nobody. Events without a key are not concerned.
        let rows: Vec<String> = (1..=4000)
            .map(|n| {
                let key = if n % 7 > 0 { format!("'{n}'") } else { "NULL".to_owned() };
                let left = n % 7 > 0 && n % 2 == 0;
                let until =
                    if left { "'9999-12-31 23:59:59.999999'" } else { "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR" };
                format!("('t{}', {key}, {until})", n % 3)
            })
            .collect();
        execute(
            &url,
            &format!(
                "INSERT INTO oncebox_outbox (topic, `key`, held_until) VALUES {}; \
                 INSERT INTO oncebox_outbox (topic, `key`, held_until) \
                 SELECT topic, `key`, '9999-12-31 23:59:59.999999' FROM oncebox_outbox WHERE `key` IS NOT NULL",
                rows.join(", ")
            ),
        )
        .await;
        let due = "SELECT COUNT(*) FROM oncebox_outbox WHERE held_until <= UTC_TIMESTAMP(6)";
        let left_behind = (1..=4000).filter(|n| n % 7 > 0 && n % 2 == 0).count();
        store.purge_published(HOUR).await.unwrap();
        assert_eq!(number(&url, due).await, i64::try_from(left_behind).unwrap());
        store.purge_published(HOUR).await.unwrap();
        assert_eq!(number(&url, due).await, i64::try_from(left_behind).unwrap(), "those behind them wait");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_do_not_wait_for_an_operator_who_has_an_event() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "held"), ("b", "parked")]).await;
        let operator = begun(&url, "SELECT seq FROM oncebox_outbox FOR UPDATE").await;
        let recorder = same(&relay);
        let deliveries = Deliveries {
            held: vec![HeldEvent { seq: seqs[0], delay: HOUR, error: Some("no".to_owned()) }],
            parked: vec![ParkedEvent { seq: seqs[1], error: "never".to_owned() }],
            ..Deliveries::default()
        };
        let recording = tokio::spawn(async move { recorder.record_deliveries(deliveries).await });
        until_someone_waits(&url).await;
        let renewed = timeout(Duration::from_secs(5), store.lease(relay.id, "by hand", HOUR)).await;
        assert_eq!(renewed.unwrap().unwrap().held.len(), 16);
        commit(operator).await;
        recording.await.unwrap();
        assert!(relay.next("t").await.is_empty());
    })
    .await;
}

/// Reads until a topic has nothing more, and publishes it; the texts in their order.
async fn publish_all(relay: &HandRelay, topic: &str) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let batch = relay.next(topic).await;
        if batch.is_empty() {
            return texts;
        }
        texts.extend(batch.iter().map(text));
        relay.publish(batch.iter().map(|event| event.seq).collect()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_waiting_events_do_not_stand_in_the_way() {
    with_store(|store, url| async move {
        const WAITING: usize = 20_000;
        let relay = HandRelay::start(&store).await;
        let seqs = emit(&store, "t", &[("a", "failing")]).await;
        for part in (0..WAITING).collect::<Vec<_>>().chunks(5000) {
            let rows: Vec<String> = part.iter().map(|n| format!("('t', 'a', '{n}')")).collect();
            execute(
                &url,
                &format!("INSERT INTO oncebox_outbox (topic, `key`, payload) VALUES {}", rows.join(", ")),
            )
            .await;
        }
        let last = emit(&store, "t", &[("b", "other")]).await;
        relay.hold(seqs[0], HOUR).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while relay.texts("t").await != ["other"] {
            assert!(Instant::now() < deadline, "the other event is never found");
        }
        relay.publish(last).await;
        assert!(relay.next("t").await.is_empty());
        assert!(ready(&store, &relay.shards()).await.unwrap().is_empty());
        relay.publish(seqs).await;
        let expected: Vec<String> = (0..WAITING).map(|n| n.to_string()).collect();
        assert!(publish_all(&relay, "t").await == expected, "all of them, in order");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_due_keys_than_one_batch_takes_are_all_published() {
    with_store(|store, url| async move {
        let relay = HandRelay::start(&store).await;
        let rows: Vec<String> =
            (0..700).flat_map(|key| (0..3).map(move |n| format!("('t', 'k{key}', '{key}/{n}')"))).collect();
        execute(&url, &format!("INSERT INTO oncebox_outbox (topic, `key`, payload) VALUES {}", rows.join(", ")))
            .await;
        let firsts: Vec<i64> = {
            let all = store
                .next_events("t", &relay.shards(), BatchBounds { messages: 5000, ..MANY })
                .await
                .unwrap();
            assert_eq!(all.len(), 2100);
            all.iter().filter(|event| text(event).ends_with("/0")).map(|event| event.seq).collect()
        };
        let held = firsts.iter().map(|seq| HeldEvent { seq: *seq, delay: HOUR, error: Some(format!("no {seq}")) });
        relay.record_deliveries(Deliveries { held: held.collect(), ..Deliveries::default() }).await;
        assert!(relay.next("t").await.is_empty());
        assert!(ready(&store, &relay.shards()).await.unwrap().is_empty());
        execute(
            &url,
            "UPDATE oncebox_outbox SET held_until = UTC_TIMESTAMP(6) WHERE held_until < '9999-12-31 23:59:59.999999'",
        )
        .await;
        let published = publish_all(&relay, "t").await;
        assert_eq!(published.len(), 2100);
        for key in 0..700 {
            let prefix = format!("{key}/");
            let of_key: Vec<&String> = published.iter().filter(|text| text.starts_with(&prefix)).collect();
            assert_eq!(of_key, [&format!("{key}/0"), &format!("{key}/1"), &format!("{key}/2")]);
        }
    })
    .await;
}

/// Two relays with some shards each, and a writer and an operator beside them: each key is published in order.
#[tokio::test(flavor = "multi_thread")]
async fn relays_and_operators_beside_each_other_keep_the_order() {
    const ROUNDS: usize = 60;
    with_store(|store, url| async move {
        let mut first = HandRelay::start(&store).await;
        store.release_shards(first.id, &(8..16).collect::<Vec<_>>(), false).await.unwrap();
        let second = HandRelay::start(&store).await;
        first.leases = store.lease(first.id, "by hand", HOUR).await.unwrap();
        assert_eq!((first.shards(), second.shards()), ((0..8).collect(), (8..16).collect()));
        let writing = CancellationToken::new();
        let writer = tokio::spawn({
            let (store, written) = (store.clone(), writing.clone().drop_guard());
            async move {
                let keys: Vec<String> = (0..8).map(|key| format!("k{key}")).collect();
                for n in 0..ROUNDS {
                    let text = n.to_string();
                    let events: Vec<(&str, &str)> =
                        keys.iter().map(|key| (key.as_str(), text.as_str())).collect();
                    emit(&store, "t", &events).await;
                }
                drop(written);
            }
        });
        let (mut published, of_second) =
            tokio::join!(publish_some(&first, &url, &writing), publish_some(&second, &url, &writing));
        published.extend(of_second);
        writer.await.unwrap();
        for key in 0..8 {
            let of_key: Vec<usize> =
                published.iter().filter(|(of, _)| *of == format!("k{key}")).map(|(_, n)| *n).collect();
            assert_eq!(of_key, (0..ROUNDS).collect::<Vec<_>>(), "k{key}");
        }
    })
    .await;
}

/// Publishes what it can, and fails every fifth; an operator's retry makes those due. Ends when the writer has, and nothing is
/// left.
async fn publish_some(relay: &HandRelay, url: &str, written: &CancellationToken) -> Vec<(String, usize)> {
    let shards: Vec<String> = relay.shards().iter().map(u16::to_string).collect();
    let left = format!("SELECT COUNT(*) FROM oncebox_outbox WHERE shard IN ({})", shards.join(","));
    let deadline = Instant::now() + Duration::from_secs(120);
    let (mut published, mut round) = (Vec::new(), 0);
    while !written.is_cancelled() || number(url, &left).await > 0 {
        assert!(Instant::now() < deadline, "it comes to no end");
        round += 1;
        let mut deliveries = Deliveries { leases: relay.leases.held.clone(), ..Deliveries::default() };
        let mut failed: Vec<Vec<u8>> = Vec::new();
        let shards = relay.shards();
        let batch = unless_busy(async || relay.store.next_events("t", &shards, MANY).await).await;
        for (at, event) in batch.iter().enumerate() {
            let key = event.key.as_deref().unwrap().to_vec();
            if failed.contains(&key) {
                deliveries.held.push(HeldEvent { seq: event.seq, delay: HOUR, error: None });
            } else if (round + at) % 5 == 0 {
                deliveries.held.push(HeldEvent { seq: event.seq, delay: HOUR, error: Some("no".to_owned()) });
                failed.push(key);
            } else {
                deliveries.published.push(event.seq);
                published.push((String::from_utf8(key).unwrap(), text(event).parse().unwrap()));
            }
        }
        unless_busy(async || relay.store.record_deliveries(&deliveries).await).await;
        unless_busy(async || relay.store.retry_events(&every()).await).await;
    }
    published
}

/// Tries again what was in the way of another, as the relay does.
async fn unless_busy<R>(work: impl AsyncFn() -> StoreResult<R>) -> R {
    for _ in 0..100 {
        match work().await {
            Ok(done) => return done,
            Err(error) => assert_eq!(error.class, ErrorClass::Transient, "{error}"),
        }
    }
    panic!("it is always in the way")
}
