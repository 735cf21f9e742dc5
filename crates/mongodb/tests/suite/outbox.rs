//! How others write into the outbox, and what is read from it.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::{Client, Database};
use oncebox_core::error::BoxError;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::{Emit, Event, Relay};
use oncebox_core::store::{
    Deliveries, ErrorClass, EventFilter, EventState, HeldEvent, Outbox, OutboxAdmin, Status, Store,
};
use oncebox_mongodb::{MongoStore, MongoTx};
use oncebox_testkit::conformance::ready;
use oncebox_testkit::{FakeSink, drain};

use super::by_hand::{HOUR, HandRelay, MANY, draw, emit, every, insert, outbox, plain, text};
use super::support::{database, stock};

/// What a program in another language does: draw a number, and write a document in its own transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_plain_document_is_an_event() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let client = Client::with_uri_str(temporary.url()).await.unwrap();
    let shop = client.default_database().unwrap();
    for (ending, key) in [("rolled back", "a"), ("committed", "b")] {
        let seq = draw(&store, 1).await;
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let orders = shop.collection::<Document>("orders");
        orders.insert_one(doc! { "state": ending }).session(&mut session).await.unwrap();
        let event = plain(seq, "t", Some(key), ending);
        shop.collection("oncebox_outbox").insert_one(event).session(&mut session).await.unwrap();
        assert!(relay.next("t").await.is_empty());
        match ending {
            "committed" => session.commit_transaction().await.unwrap(),
            _ => session.abort_transaction().await.unwrap(),
        }
    }
    emit(&store, "t", &[("b", "by the store")]).await;
    let events = relay.next("t").await;
    assert_eq!(events.iter().map(text).collect::<Vec<_>>(), ["committed", "by the store"]);
    let entries = relay.entries().await;
    assert_eq!(entries[0].shard, entries[1].shard, "a key has one shard, whoever writes it");
    relay.hold(events[0].seq, HOUR).await;
    assert!(relay.next("t").await.is_empty(), "and one order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_is_no_event_is_refused() {
    let temporary = database().await;
    let store = temporary.store();
    let with = |name: &str, value: Bson| {
        let mut event = plain(1, "t", Some("k"), "x");
        event.insert(name, value);
        event
    };
    let long = "t".repeat(250);
    let topics = ["", "a b", "t ", "t\n", "ä", ".", "..", long.as_str()];
    let mut wrong: Vec<Document> = topics.iter().map(|topic| with("topic", (*topic).into())).collect();
    for id in ["x", "00000000-0000-7000-8000-00000000000A", ""] {
        wrong.push(with("id", id.into()));
    }
    wrong.extend([
        with("_id", 7.5.into()),
        with("_id", "7".into()),
        with("key", "text".into()),
        with("payload", Bson::Document(doc! { "a": 1 })),
        with("headers", Bson::Document(doc! {})),
        with("created_at", "2026-01-01".into()),
        with("shard", 16.into()),
        with("shard", (-1).into()),
        with("bytes", Bson::Null),
        with("state", "pending".into()),
        with("held_until", DateTime::now().into()),
        with("published_at", DateTime::now().into()),
        with("state", "held".into()),
    ]);
    for name in ["id", "topic", "headers", "created_at", "attempts", "state", "shard", "bytes"] {
        let mut event = plain(1, "t", Some("k"), "x");
        event.remove(name);
        wrong.push(event);
    }
    for event in wrong {
        let refused = outbox(&store).insert_one(&event).await;
        let Err(error) = refused else { panic!("{event} was taken") };
        assert_eq!(MongoStore::classify(&error), ErrorClass::Failed, "{event}: {error}");
    }
    assert_eq!(outbox(&store).count_documents(doc! {}).await.unwrap(), 0);
    outbox(&store).insert_one(plain(1, "t", None, "x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_keys_are_spread_over_all_shards() {
    let temporary = database().await;
    let store = temporary.store();
    let mut txn = store.claim(&stock(), &[]).await.unwrap().txn;
    let events: Vec<Event> = (0..1000).map(|_| Event::to("t")).collect();
    txn.emit_all(&events).await.unwrap();
    store.commit(txn, None).await.unwrap();
    let shards = outbox(&store).distinct("shard", doc! {}).await.unwrap();
    assert_eq!(shards, (0..16).map(Bson::Int32).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn emit_works_in_transactions_of_the_application() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let client = Client::with_uri_str(temporary.url()).await.unwrap();
    let mut ids = Vec::new();
    for ending in ["never", "transaction"] {
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let mut tx = MongoTx::new(session, client.default_database().unwrap());
        ids.push(tx.emit(Event::to("t").key("k").bytes(ending)).await.unwrap());
        assert!(relay.next("t").await.is_empty());
        let mut session = tx.into_session();
        match ending {
            "never" => session.abort_transaction().await.unwrap(),
            _ => session.commit_transaction().await.unwrap(),
        }
    }
    let events = relay.next("t").await;
    assert_eq!((events.len(), text(&events[0]).as_str(), events[0].id), (1, "transaction", ids[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_and_small_events_keep_their_order() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    // The largest that fits, and more than one answer of the server can hold.
    let largest = 15 * 1024 * 1024 - 3;
    let sizes = [10, largest, 100, 1_000_000, 1, largest, 0];
    let events: Vec<Event> = sizes.iter().map(|size| Event::to("t").key("k").bytes(vec![7; *size])).collect();
    let mut txn = store.claim(&stock(), &[]).await.unwrap().txn;
    txn.emit_all(&events).await.unwrap();
    let too_large = txn.emit(Event::to("t").key("k").bytes(vec![7; largest + 1])).await.unwrap_err();
    assert!(too_large.to_string().contains("to t"), "{too_large}");
    store.commit(txn, None).await.unwrap();
    let wide = BatchBounds { bytes: 64 * 1024 * 1024, ..MANY };
    let read = store.next_events("t", &relay.shards(), wide).await.unwrap();
    let found: Vec<usize> = read.iter().map(|event| event.payload.as_ref().unwrap().len()).collect();
    assert_eq!(found, sizes);
    assert!(read.iter().zip(&events).all(|(read, event)| read.id == event.id()));
    let narrow = BatchBounds { bytes: 1000, ..MANY };
    for held in [false, true] {
        if held {
            relay.hold(read[6].seq, HOUR).await;
        }
        assert_eq!(store.next_events("t", &relay.shards(), narrow).await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_are_no_events_are_parked() {
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let first = draw(&store, 6).await;
    let written = (first..).zip(["[1]", "no JSON", "{\"n\": 1}", "{}", "{}", "{}"]).map(|(seq, headers)| {
        let mut event = plain(seq, "t", Some("k"), "x");
        event.insert("headers", headers);
        event
    });
    let mut written: Vec<Document> = written.collect();
    written[3].insert("id", "no UUID");
    written[4].insert("payload", "text");
    written[5].insert("deliver_at", "tomorrow");
    outbox(&store).insert_many(written).bypass_document_validation(true).await.unwrap();
    // Also behind one that is held.
    relay.hold(first, HOUR).await;
    assert!(relay.next("t").await.is_empty());
    store.retry_events(&every()).await.unwrap();
    let good: Vec<i64> = relay.next("t").await.iter().map(|event| event.seq).collect();
    assert_eq!(good, [first + 2]);
    let parked = EventFilter { state: Some(EventState::Parked), ..every() };
    let parked = store.events(&parked).await.unwrap();
    let errors: Vec<&str> = parked.iter().map(|entry| entry.error.as_deref().unwrap()).collect();
    let expected = ["headers", "headers", "id", "payload", "deliver_at"];
    assert_eq!(errors.len(), 5);
    assert!(errors.iter().zip(expected).all(|(error, part)| error.contains(part)), "{errors:?}");
    relay.publish(good).await;
    assert!(ready(&store, &relay.shards()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_topics_are_all_found() {
    let temporary = database().await;
    let store = temporary.store();
    let topics: Vec<String> = (0..250).map(|n| format!("t{n:03}")).collect();
    let keys = ["k", "l"].map(|key| Some(key.to_owned()));
    insert(
        &store,
        topics.iter().flat_map(|topic| keys.clone().map(|key| (topic.clone(), key, String::new()))),
    )
    .await;
    let ready = ready(&store, &(0..16).collect::<Vec<_>>()).await.unwrap();
    let mut found: Vec<&str> = ready.iter().map(|(topic, _)| topic.as_str()).collect();
    assert_eq!(found.len(), 500);
    found.dedup();
    assert_eq!(found, topics);
    let oldest = store.status(10).await.unwrap().outbox;
    assert_eq!((oldest.pending, oldest.held), (10, 0));
    assert!(oldest.oldest.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_publishes_in_order_what_several_write() {
    let temporary = database().await;
    let store = temporary.store();
    let mut writers = Vec::new();
    for writer in 0..3 {
        let store = store.clone();
        writers.push(tokio::spawn(async move {
            for n in 0..40 {
                let (key, text) = (format!("w{writer}"), n.to_string());
                if n % 2 == 0 {
                    emit(&store, "t", &[(&key, &text)]).await;
                } else {
                    insert(&store, [("t".to_owned(), Some(key), text)]).await;
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let sink = FakeSink::new();
    sink.fail_next(7);
    drain(&store, Relay::new(store.clone()).sink(sink.clone())).await;
    let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in sink.delivered().all() {
        let key = String::from_utf8(event.key().unwrap().to_vec()).unwrap();
        let text = String::from_utf8(event.payload().unwrap().to_vec()).unwrap();
        by_key.entry(key).or_default().push(text);
    }
    let expected: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    assert_eq!(by_key.len(), 3);
    assert!(by_key.values().all(|texts| *texts == expected), "{by_key:?}");
    assert_eq!(outbox(&store).count_documents(doc! {}).await.unwrap(), 0);
}

/// What the server looked at since it was asked to write that down, by command: the most keys and documents of one.
async fn looked_at(database: &Database) -> i64 {
    let profile = database.collection::<Document>("system.profile");
    let found = profile.find(doc! { "ns": { "$regex": "oncebox_outbox$" } }).await.unwrap();
    let found: Vec<Document> = found.try_collect().await.unwrap();
    assert!(!found.is_empty(), "nothing was written down");
    let number = |entry: &Document, name: &str| match entry.get(name) {
        Some(Bson::Int32(n)) => i64::from(*n),
        Some(Bson::Int64(n)) => *n,
        _ => 0,
    };
    found.iter().map(|entry| number(entry, "keysExamined").max(number(entry, "docsExamined"))).max().unwrap()
}

/// However much lies in the outbox, a command looks at no more than it returns, and a little.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_goes_along_the_indexes() {
    const MANY_EVENTS: usize = 6000;
    let temporary = database().await;
    let store = temporary.store();
    let relay = HandRelay::start(&store).await;
    let rows = |topic: &'static str, one_key: bool| {
        (0..MANY_EVENTS).map(move |n| {
            let key = if one_key { "k".to_owned() } else { format!("k{n}") };
            (topic.to_owned(), Some(key), String::new())
        })
    };
    insert(&store, rows("crowded", false)).await;
    insert(&store, rows("published", false)).await;
    insert(&store, rows("stuck", true)).await;
    let published = doc! { "$set": { "state": "published", "published_at": DateTime::now() } };
    outbox(&store).update_many(doc! { "topic": "published" }, published).await.unwrap();
    let end = DateTime::from_millis(253_402_300_799_999);
    let held = doc! { "$set": { "state": "held", "held_until": end } };
    outbox(&store).update_many(doc! { "topic": "stuck" }, held).await.unwrap();
    let first = outbox(&store).find_one(doc! { "topic": "stuck" }).sort(doc! { "_id": 1 }).await.unwrap();
    let first = first.unwrap().get_i64("_id").unwrap();
    relay.hold(first, HOUR).await;
    let few = emit(&store, "few", &[("a", "1"), ("a", "2"), ("b", "3")]).await;
    emit(&store, "stuck", &[("k", "behind"), ("other", "free")]).await;

    let beside = temporary.database().await;
    beside.run_command(doc! { "profile": 2 }).await.unwrap();
    assert!(!ready(&store, &relay.shards()).await.unwrap().is_empty());
    assert_eq!(relay.texts("few").await, ["1", "2", "3"]);
    assert_eq!(relay.texts("stuck").await, ["free"]);
    let ten = BatchBounds { messages: 10, ..MANY };
    assert_eq!(store.next_events("crowded", &relay.shards(), ten).await.unwrap().len(), 10);
    let failed = HeldEvent { seq: few[0], delay: HOUR, error: Some("no".to_owned()) };
    let behind = HeldEvent { seq: few[1], delay: HOUR, error: None };
    let deliveries =
        Deliveries { published: vec![few[2]], held: vec![failed, behind], ..Deliveries::default() };
    relay.record_deliveries(deliveries).await;
    relay.publish(vec![first]).await;
    store.status(10).await.unwrap();
    beside.run_command(doc! { "profile": 0 }).await.unwrap();
    let most = looked_at(&beside).await;
    assert!(most <= 200, "a command looked at {most}");
}

/// They draw numbers from one document, outside of their transactions. What the server notes about that must not be in the way
/// of a transaction that begins at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn writers_are_not_in_each_others_way() {
    let temporary = database().await;
    let mut writers = Vec::new();
    for writer in 0..16 {
        let store = temporary.store();
        writers.push(tokio::spawn(async move {
            for n in 0..60 {
                let mut txn = store.claim(&stock(), &[]).await?.txn;
                txn.emit(Event::to("t").key(format!("{writer}")).bytes(format!("{n}"))).await?;
                store.commit(txn, None).await?;
            }
            Ok::<(), BoxError>(())
        }));
    }
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    assert_eq!(outbox(&temporary.store()).count_documents(doc! {}).await.unwrap(), 960);
}
