//! Held keys, and what happens when transactions meet at the outbox.

use std::time::Duration;

use mongodb::bson::{DateTime, doc};
use mongodb::{Client, ClientSession};
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{Deliveries, ErrorClass, HeldEvent, Outbox, OutboxAdmin, ParkedEvent, StoreResult};
use oncebox_mongodb::{MongoStore, MongoTx, TemporaryMongo};
use oncebox_testkit::conformance::ready;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::by_hand::{HOUR, HandRelay, MANY, emit, every, insert, outbox, text};
use super::support::database;

/// A transaction of an application, on a connection of its own.
async fn begun(temporary: &TemporaryMongo) -> MongoTx {
    let client = Client::with_uri_str(temporary.url()).await.unwrap();
    let mut session: ClientSession = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    MongoTx::new(session, client.default_database().unwrap())
}

async fn commit(tx: MongoTx) -> mongodb::error::Result<()> {
    tx.into_session().commit_transaction().await
}

/// Waits a little longer each round, so that many ways to meet come up; in the first one until the other is through.
async fn meet<T>(other: &JoinHandle<T>, round: usize) {
    while round == 0 && !other.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(u64::try_from(round % 10).unwrap())).await;
}

fn same(relay: &HandRelay) -> HandRelay {
    HandRelay { store: relay.store.clone(), id: relay.id, leases: relay.leases.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_transaction_elsewhere_stops_nobody() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let mut open = begun(&temporary).await;
    open.emit(Event::to("t").key("a").bytes("late")).await.unwrap();
    let seqs = emit(&store, "t", &[("a", "early"), ("b", "other"), ("c", "held"), ("d", "parked")]).await;
    assert_eq!(relay.next("t").await.len(), 4);
    // Whatever is done with the others: nothing waits for the one that is not committed.
    relay.hold(seqs[2], HOUR).await;
    relay.park(seqs[3]).await;
    assert_eq!(relay.texts("t").await, ["early", "other"]);
    relay.publish(seqs[..2].to_vec()).await;
    assert_eq!(store.retry_events(&every()).await.unwrap(), 2);
    assert_eq!(store.drop_events(&every()).await.unwrap(), 2);
    store.purge_published(Duration::ZERO).await.unwrap();
    commit(open).await.unwrap();
    assert_eq!(relay.texts("t").await, ["late"], "its number is lower than those that were published");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_lost_its_shards_cannot_hold_or_park() {
    let temporary = database().await;
    let store = temporary.store();
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
}

/// A take-over that is not through yet: a record beside it cannot commit, and finds out afterwards that it is too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_waits_for_a_take_over_that_is_under_way() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let seqs = emit(&store, "t", &[("a", "held"), ("b", "parked")]).await;
    let mut open = begun(&temporary).await;
    let mut shards = open.collection::<mongodb::bson::Document>("oncebox_shard");
    shards.update_many(doc! {}, doc! { "$inc": { "epoch": 1_i64 } }).await.unwrap();
    let deliveries = Deliveries {
        held: vec![HeldEvent { seq: seqs[0], delay: HOUR, error: Some("too late".to_owned()) }],
        parked: vec![ParkedEvent { seq: seqs[1], error: "too late".to_owned() }],
        ..Deliveries::default()
    };
    let recording = tokio::spawn({
        let relay = same(&relay);
        async move { relay.record_deliveries(deliveries).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!recording.is_finished());
    commit(open).await.unwrap();
    recording.await.unwrap();
    assert_eq!(relay.texts("t").await, ["held", "parked"]);
    assert!(relay.entries().await.iter().all(|entry| entry.error.is_none() && entry.event.attempts == 0));
}

/// However a take-over and a record meet: what the old relay records after the new one has its lease changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_meets_a_take_over_is_before_it_or_nothing() {
    const ROUNDS: usize = 25;
    let temporary = database().await;
    let store = temporary.store();
    let (mut before, mut nothing) = (0, 0);
    let mut relay = HandRelay::start(&store).await;
    let seq = emit(&store, "t", &[("a", "x")]).await[0];
    for round in 0..ROUNDS {
        let attempts = async || relay.entries().await[0].event.attempts;
        let held = vec![HeldEvent { seq, delay: Duration::ZERO, error: Some("no".to_owned()) }];
        let deliveries = Deliveries { leases: relay.leases.held.clone(), held, ..Deliveries::default() };
        let known = attempts().await;
        let recording = tokio::spawn({
            let store = store.clone();
            async move { store.record_deliveries(&deliveries).await }
        });
        meet(&recording, round).await;
        store.release_shards(relay.id, &relay.shards(), true).await.unwrap();
        let new = HandRelay::start(&store).await;
        let at_take_over = attempts().await;
        recording.await.unwrap().unwrap();
        assert_eq!(attempts().await, at_take_over, "recorded after the take-over");
        if at_take_over > known {
            before += 1;
        } else {
            nothing += 1;
        }
        relay = new;
    }
    assert_eq!(before + nothing, ROUNDS);
    assert!(before > 0, "no record was early enough to count, so this shows nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn held_events_pass_to_the_next_relay() {
    let temporary = database().await;
    let store = temporary.store();
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
}

/// The first one goes while others are put behind it, in every order that comes up: nobody waits for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn who_goes_and_who_is_put_behind_find_each_other() {
    const ROUNDS: usize = 40;
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let mut put_behind = 0;
    for round in 0..ROUNDS {
        let seqs = emit(&store, "t", &[("a", "going"), ("a", "next")]).await;
        relay.hold(seqs[0], HOUR).await;
        let reading = tokio::spawn({
            let relay = same(&relay);
            async move { relay.next("t").await }
        });
        meet(&reading, round).await;
        match round % 3 {
            0 => relay.publish(vec![seqs[0]]).await,
            1 => relay.park(seqs[0]).await,
            _ => assert_eq!(store.drop_events(&one(seqs[0])).await.unwrap(), 1),
        }
        reading.await.unwrap();
        let found = outbox(&store).find_one(doc! { "_id": seqs[1] }).await.unwrap().unwrap();
        put_behind += usize::from(found.get_str("state").unwrap() == "held");
        assert!(!ready(&store, &relay.shards()).await.unwrap().is_empty(), "nobody has to look by chance");
        assert_eq!(relay.texts("t").await, ["next"]);
        store.drop_events(&every()).await.unwrap();
    }
    assert!(put_behind > 0, "none was put behind, so this shows nothing");
}

fn one(seq: i64) -> oncebox_core::store::EventFilter {
    oncebox_core::store::EventFilter { seqs: vec![seq], ..every() }
}

/// An application or an operator has changed the event that is held, and is not through yet.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_goes_past_an_event_that_is_being_changed() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let seqs = emit(&store, "t", &[("a", "going"), ("a", "next")]).await;
    relay.hold(seqs[0], HOUR).await;
    let mut open = begun(&temporary).await;
    open.collection::<mongodb::bson::Document>("oncebox_outbox")
        .delete_one(doc! { "_id": seqs[0] })
        .await
        .unwrap();
    let reading = tokio::spawn({
        let relay = same(&relay);
        async move { relay.next("t").await }
    });
    // It cannot put the next one behind an event that another transaction has in its hands.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!reading.is_finished());
    commit(open).await.unwrap();
    let found: Vec<String> = reading.await.unwrap().iter().map(text).collect();
    assert_eq!(found, ["next"]);
}

/// The first goes while the next, which has a time of its own, is taken away: what waits behind both is not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn two_that_go_at_once_leave_nobody_behind() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let seqs = emit(&store, "t", &[("a", "1"), ("a", "2"), ("a", "3")]).await;
    relay.hold(seqs[0], HOUR).await;
    relay.hold(seqs[1], HOUR).await;
    assert!(relay.next("t").await.is_empty());
    // It has seen the first, and so makes nothing due.
    let mut open = begun(&temporary).await;
    open.collection::<mongodb::bson::Document>("oncebox_outbox")
        .delete_one(doc! { "_id": seqs[1] })
        .await
        .unwrap();
    let publishing = tokio::spawn({
        let (relay, first) = (same(&relay), seqs[0]);
        async move { relay.publish(vec![first]).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!publishing.is_finished(), "it cannot tell yet who is next");
    commit(open).await.unwrap();
    publishing.await.unwrap();
    assert_eq!(relay.texts("t").await, ["3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_leaves_behind_waits_for_the_housekeeping_and_is_not_overtaken() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let seqs = emit(&store, "t", &[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")]).await;
    relay.hold(seqs[0], HOUR).await;
    relay.hold(seqs[1], HOUR).await;
    assert!(relay.next("t").await.is_empty());
    outbox(&store).delete_many(doc! { "_id": { "$in": [seqs[0], seqs[1]] } }).await.unwrap();
    assert!(ready(&store, &relay.shards()).await.unwrap().is_empty());
    store.purge_published(HOUR).await.unwrap();
    assert_eq!(ready(&store, &relay.shards()).await.unwrap().len(), 1);
    assert_eq!(relay.texts("t").await, ["3", "4"]);

    // Without the housekeeping a later event of the key brings them along.
    relay.hold(seqs[2], HOUR).await;
    assert!(relay.next("t").await.is_empty());
    outbox(&store).delete_one(doc! { "_id": seqs[2] }).await.unwrap();
    let last = emit(&store, "t", &[("a", "5")]).await;
    assert_eq!(relay.texts("t").await, ["4", "5"]);
    relay.publish(vec![seqs[3]]).await;
    relay.publish(last).await;
    assert_eq!(outbox(&store).count_documents(doc! {}).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn housekeeping_looks_at_all_keys_and_leaves_those_in_order_alone() {
    let temporary = database().await;
    let store = temporary.store();
    // More keys than one step has; every second one waits for nobody. Events without a key are not concerned.
    let is_left = |n: i64| n % 7 > 0 && n % 2 == 0;
    let row = |n: i64| (format!("t{}", n % 3), (n % 7 > 0).then(|| n.to_string()), n.to_string());
    insert(&store, (1..=4000).map(row)).await;
    insert(&store, (1..=4000).filter(|n| n % 7 > 0).map(row)).await;
    let end = DateTime::from_millis(253_402_300_799_999);
    let hold = async |filter, until| {
        let held = doc! { "$set": { "state": "held", "held_until": until } };
        outbox(&store).update_many(filter, held).await.unwrap();
    };
    let in_an_hour = DateTime::from_millis(DateTime::now().timestamp_millis() + 3_600_000);
    let left: Vec<i64> = (1..=4000).filter(|n| is_left(*n)).collect();
    hold(doc! { "_id": { "$lte": 4000_i64, "$nin": left.clone() } }, in_an_hour).await;
    hold(doc! { "state": "ready" }, end).await;
    for what in ["those that wait for nobody go on", "those behind them wait"] {
        store.purge_published(HOUR).await.unwrap();
        let due = outbox(&store).count_documents(doc! { "held_until": { "$lt": DateTime::now() } }).await;
        assert_eq!(due.unwrap(), left.len() as u64, "{what}");
    }
}

/// Who holds an event keeps nobody from renewing a lease for longer than it takes to look again.
#[tokio::test(flavor = "multi_thread")]
async fn leases_do_not_wait_for_an_operator_who_has_an_event() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let seqs = emit(&store, "t", &[("a", "held"), ("b", "parked")]).await;
    let mut open = begun(&temporary).await;
    let all = open
        .collection::<mongodb::bson::Document>("oncebox_outbox")
        .update_many(doc! {}, doc! { "$inc": { "by": 1 } })
        .await;
    assert_eq!(all.unwrap().matched_count, 2);
    let recorder = same(&relay);
    let deliveries = Deliveries {
        held: vec![HeldEvent { seq: seqs[0], delay: HOUR, error: Some("no".to_owned()) }],
        parked: vec![ParkedEvent { seq: seqs[1], error: "never".to_owned() }],
        ..Deliveries::default()
    };
    let recording = tokio::spawn(async move { recorder.record_deliveries(deliveries).await });
    for _ in 0..5 {
        let renewed = timeout(Duration::from_secs(5), store.lease(relay.id, "by hand", HOUR)).await;
        assert_eq!(renewed.unwrap().unwrap().held.len(), 16);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert!(!recording.is_finished());
    commit(open).await.unwrap();
    recording.await.unwrap();
    assert!(relay.next("t").await.is_empty());
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
    const WAITING: usize = 20_000;
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let seqs = emit(&store, "t", &[("a", "failing")]).await;
    insert(&store, (0..WAITING).map(|n| ("t".to_owned(), Some("a".to_owned()), n.to_string()))).await;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn more_due_keys_than_one_batch_takes_are_all_published() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let rows = (0..700)
        .flat_map(|key| (0..3).map(move |n| ("t".to_owned(), Some(format!("k{key}")), format!("{key}/{n}"))));
    insert(&store, rows).await;
    let wide = BatchBounds { messages: 5000, ..MANY };
    let all = store.next_events("t", &relay.shards(), wide).await.unwrap();
    assert_eq!(all.len(), 2100);
    let firsts = all.iter().filter(|event| text(event).ends_with("/0")).map(|event| event.seq);
    let held = firsts.map(|seq| HeldEvent { seq, delay: HOUR, error: Some(format!("no {seq}")) }).collect();
    relay.record_deliveries(Deliveries { held, ..Deliveries::default() }).await;
    assert!(relay.next("t").await.is_empty());
    assert!(ready(&store, &relay.shards()).await.unwrap().is_empty());
    let end = DateTime::from_millis(253_402_300_799_999);
    let due = vec![doc! { "$set": { "held_until": "$$NOW" } }];
    outbox(&store).update_many(doc! { "held_until": { "$lt": end } }, due).await.unwrap();
    let published = publish_all(&relay, "t").await;
    assert_eq!(published.len(), 2100);
    for key in 0..700 {
        let prefix = format!("{key}/");
        let of_key: Vec<&String> = published.iter().filter(|text| text.starts_with(&prefix)).collect();
        assert_eq!(of_key, [&format!("{key}/0"), &format!("{key}/1"), &format!("{key}/2")]);
    }
}

/// Two relays with some shards each, and a writer and an operator beside them: each key is published in order.
#[tokio::test(flavor = "multi_thread")]
async fn relays_and_operators_beside_each_other_keep_the_order() {
    const ROUNDS: usize = 60;
    let temporary = database().await;
    let store = temporary.store();
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
        tokio::join!(publish_some(&first, &store, &writing), publish_some(&second, &store, &writing));
    published.extend(of_second);
    writer.await.unwrap();
    for key in 0..8 {
        let of_key: Vec<usize> =
            published.iter().filter(|(of, _)| *of == format!("k{key}")).map(|(_, n)| *n).collect();
        assert_eq!(of_key, (0..ROUNDS).collect::<Vec<_>>(), "k{key}");
    }
}

/// Publishes what it can, and fails every fifth; an operator's retry makes those due. Ends when the writer has, and nothing is
/// left.
async fn publish_some(
    relay: &HandRelay,
    store: &MongoStore,
    written: &CancellationToken,
) -> Vec<(String, usize)> {
    let shards: Vec<i32> = relay.shards().iter().map(|shard| i32::from(*shard)).collect();
    let left = async || outbox(store).count_documents(doc! { "shard": { "$in": &shards } }).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let (mut published, mut round) = (Vec::new(), 0);
    while !written.is_cancelled() || left().await > 0 {
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
